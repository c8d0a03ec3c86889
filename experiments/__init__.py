"""Experiments whose results ``docs`` publishes; not part of the installed package."""
