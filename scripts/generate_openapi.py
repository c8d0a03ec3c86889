"""Generate ``docs/openapi.json`` from the routes of the REST API. Usage: ``generate_openapi.py``."""

from __future__ import annotations

import json
from pathlib import Path

from service.app import create_app
from speciate.settings import Settings

TARGET = Path(__file__).resolve().parents[1] / "docs" / "openapi.json"

if __name__ == "__main__":
    document = create_app(Settings(host="127.0.0.1", token=None)).openapi()
    TARGET.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
