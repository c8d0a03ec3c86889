"""Write the OpenAPI document to ``docs/openapi.json``. Usage: ``python -m service.openapi``."""

import json
from pathlib import Path
from typing import Final

from service.app import create_app
from speciate.settings import Settings

PATH: Final = Path(__file__).resolve().parents[1] / "docs" / "openapi.json"


def text() -> str:
    app = create_app(Settings(host="127.0.0.1", token=None))
    return json.dumps(app.openapi(), indent=2, ensure_ascii=False) + "\n"


def main() -> None:
    PATH.parent.mkdir(exist_ok=True)
    PATH.write_text(text(), encoding="utf-8")


if __name__ == "__main__":
    main()
