# One image for every process of ours; which one it is, is its command.
FROM python:3.12-slim
RUN useradd --system --uid 10001 speciate
WORKDIR /app
COPY pyproject.toml README.md LICENSE ./
COPY speciate speciate
COPY service service
COPY workers workers
COPY evaluators evaluators
COPY migrations migrations
RUN pip install --no-cache-dir -e .
USER speciate
CMD ["speciate", "--help"]
