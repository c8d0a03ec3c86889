"""A report as tables, as SVG figures and as one HTML file."""
