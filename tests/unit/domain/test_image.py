"""Problems with a container image: what a definition may say."""

import pytest

from speciate.domain.errors import InvalidInputError
from speciate.domain.problem import Problem
from speciate.problems.definition import parse_definition
from tests.support.runs import toy_problem

PINNED = "docker.io/library/python@sha256:" + 64 * "a"
PYTHON = {"name": "Python", "file": "main.py", "run": ["python3", "main.py"]}


def parse(**changes: object) -> Problem:
    return parse_definition(toy_problem().model_dump(mode="json") | {"language": PYTHON, "image": PINNED} | changes)


def test_a_pinned_image_needs_a_worker_that_runs_images():
    assert parse().worker_capabilities == {"container images"}
    assert len(parse(writable=["/app"]).worker_capabilities) == 2
    assert parse(image=None).worker_capabilities == {"python3"}


def test_the_image_is_part_of_the_digest_only_if_it_is_set():
    assert "image" not in toy_problem().stored_json()
    assert parse().evaluator_digest != parse(image=PINNED.replace("a" * 64, "b" * 64)).evaluator_digest


@pytest.mark.parametrize(
    ("changes", "where", "said"),
    [
        ({"image": "python:3.13"}, "image", "podman image inspect --format '{{index .RepoDigests 0}}' python:3.13"),
        ({"image": "python"}, "image", "names no digest"),
        ({"image": "python@sha256:abc"}, "image", "64 hexadecimal digits"),
        ({"image": "-v /:/host"}, "image", "is no reference"),
        ({"image": "--privileged@sha256:" + 64 * "a"}, "image", "is no reference"),
        ({"image": 7}, "image", "string"),
        ({"language": None}, "image", "declare `language`"),
        ({"image": None, "writable": ["/app"]}, "writable", "the problem has no `image`"),
        ({"writable": ["app"]}, "writable", "an absolute path"),
        ({"writable": ["/app:rw,exec"]}, "writable", "an absolute path"),
    ],
)
def test_mistakes_name_the_field(changes, where, said):
    with pytest.raises(InvalidInputError) as raised:
        parse(**changes)
    found = [error for error in raised.value.field_errors if error.where.startswith(where)]
    assert found, raised.value.field_errors
    assert said in str(found[0])
