"""The asyncio client.

Generated from ``aio/__init__.py`` by ``make client``: do not edit.
"""
