"""Write all pages."""

from reference import PAGES

for path, made in PAGES.items():
    path.parent.mkdir(exist_ok=True)
    path.write_text(made())
