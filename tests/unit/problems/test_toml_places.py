import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speciate.problems.toml_places import line_of, toml_places

DOCUMENT = '''\
# a comment with = and [brackets]
slug = "x"   # another
"quoted key" = 1
dotted.inner = 2
text = """
[[not.a.table]]
key = 1 \\" """ # after
literal = \'\'\'a
"b\'\'\'
list = [
  1, # one
  [2,
   3],
  { a = 1, b.c = [4] },
]
when = 1979-05-27T07:32:00Z

[limits]
wall_s = 1.0
[[objectives]]
name = "a"

  [[objectives]]
name = "b"
range = [0, 1]
[objectives.extra]
deep = true
[[objectives.more]]
x = ""
[[objectives.more]]
x = \'\'
'''


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("slug",), 2),
        (("quoted key",), 3),
        (("dotted", "inner"), 4),
        (("text",), 5),
        (("literal",), 8),
        (("list",), 10),
        (("list", 0), 11),
        (("list", 1), 12),
        (("list", 2, "b", "c"), 14),
        (("when",), 16),
        (("limits",), 18),
        (("limits", "wall_s"), 19),
        (("objectives",), 20),
        (("objectives", 0), 20),
        (("objectives", 1), 23),
        (("objectives", 1, "name"), 24),
        (("objectives", 1, "range", 1), 25),
        (("objectives", 1, "extra", "deep"), 27),
        (("objectives", 1, "more", 1, "x"), 31),
    ],
)
def test_every_key_table_and_element_has_its_line(path: tuple[str | int, ...], line: int) -> None:
    assert line_of(toml_places(DOCUMENT), path) == line


def test_a_missing_key_is_placed_at_the_table_around_it() -> None:
    places = toml_places(DOCUMENT)
    assert line_of(places, ("objectives", 1, "direction")) == 23
    assert line_of(places, ("nowhere", 3)) == 1


_SCALARS = st.one_of(st.integers(-9, 9), st.booleans(), st.text(alphabet="ab\"'\\#[]{}=,\n ", max_size=6))
_VALUES = st.recursive(_SCALARS, lambda inner: st.lists(inner, max_size=3), max_leaves=6)


@given(st.lists(_VALUES, max_size=6))
def test_keys_after_any_value_are_found(values: list[object]) -> None:
    text, lines = "", []
    for i, value in enumerate(values):
        lines.append(text.count("\n") + 1)
        text += f"key{i} = {_toml(value)}\n"
    tomllib.loads(text)
    places = toml_places(text)
    assert [places[(f"key{i}",)] for i in range(len(values))] == lines


def _toml(value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case int():
            return str(value)
        case str():
            if "\n" in value:
                return '"""' + value.replace("\\", "\\\\").replace('"', '\\"') + '"""'
            if "'" not in value:
                return f"'{value}'"
            return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
        case list():
            return "[" + ",\n ".join(map(_toml, value)) + "]"
    raise TypeError(value)
