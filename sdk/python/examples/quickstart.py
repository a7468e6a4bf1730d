"""A sandbox, a command, a file, and Python code inside."""

from belljar import Belljar

# Finds the server of this machine, or starts one.
with Belljar() as client, client.sandboxes.create() as sandbox:
    result = sandbox.run("echo hello from; uname -s; id -u")
    print(result.stdout, result.exit_code)

    sandbox.files.write("/workspace/numbers.csv", "1,2\n3,4\n")
    code = """
import csv
rows = list(csv.reader(open("/workspace/numbers.csv")))
print(sum(int(cell) for row in rows for cell in row))
"""
    print(sandbox.run_python(code, check=True).stdout)

    # No network, unless somebody allows it.
    print(sandbox.run("wget -q -T 2 http://192.0.2.1/ || echo no way out").stdout)
