"""``python -m fedmuon_app`` is ``fedmuon``."""

from fedmuon_app.cli import main

main()
