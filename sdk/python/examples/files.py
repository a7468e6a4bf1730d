"""Files in and out of a sandbox."""

import tempfile
from pathlib import Path

from belljar import Belljar

with Belljar() as client, client.sandboxes.create() as sandbox, tempfile.TemporaryDirectory() as directory:
    source = Path(directory) / "source"
    source.mkdir()
    (source / "report.py").write_text("open('/output/report.txt', 'w').write('fine')\n")

    sandbox.files.upload(source, "/workspace/source")
    sandbox.run("python3 source/report.py", check=True)
    sandbox.files.download("/output", Path(directory) / "output")
    print((Path(directory) / "output" / "report.txt").read_text())

    for entry in sandbox.files.list("/workspace", depth=3):
        print(entry.kind, entry.path, entry.size)
