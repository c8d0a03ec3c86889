"""Importers of problems written for other systems, and routers that speak their protocols."""
