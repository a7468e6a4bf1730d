"""Aims the document at things that exist, so that more than "not found" is tested.

Reads the document from standard input, writes the aimed one to standard output. Only what is sent is narrowed; what
must come back stays as the document has it.
"""

import json
import sys

sandbox, spare, process = sys.argv[1:]
EXISTING = {"sandbox": [sandbox, "nothing"], "process": [process, "nothing"], "tenant": ["default", "nothing"]}
PATHS = [".", "/tmp", "/tmp/new", "a.txt", "/etc/passwd", "/proc/self/status", "/nothing", ""]
COMMANDS = [["true"], ["echo", "x"], ["no-such-program"]]

# What these take away, the others would miss.
DESTRUCTIVE = {"destroy_sandbox", "pause_sandbox", "resume_sandbox", "extend_sandbox", "set_quotas", "remove_tenant"}
SPARE = {"sandbox": [spare, "nothing"], "tenant": ["spare", "nothing"]}

document = json.load(sys.stdin)
for item in document["paths"].values():
    for operation in item.values():
        # The same key for different requests is refused, as it should be.
        operation["parameters"] = [one for one in operation["parameters"] if one["name"] != "idempotency-key"]
        for parameter in operation["parameters"]:
            name, place = parameter["name"], parameter["in"]
            if place == "path" and name in EXISTING:
                things = SPARE if operation["operationId"] in DESTRUCTIVE else EXISTING
                parameter["schema"] = {"enum": things[name]}
            elif place == "query" and name == "path":
                parameter["schema"] = {"enum": PATHS}
            elif place == "query" and name == "follow":
                # What is followed never ends.
                parameter["schema"] = {"enum": [False]}

schemas = document["components"]["schemas"]
for name, schema in schemas.items():
    if not name.endswith("Request") and name != "Command":
        continue
    properties = schema.get("properties", {})
    for field in ("sandbox", "process_id", "idempotency_key"):
        properties.pop(field, None)
    for field in ("path", "from", "to"):
        if field in properties:
            properties[field] = {"enum": PATHS}
# Most combinations of these contradict each other, and no run would ever begin.
KEPT = {
    "Command": {"argv", "environment", "timeout_secs", "stdin", "output_limit"},
    "RunRequest": {"session", "command", "collect", "detach"},
    "SessionSpec": {"ephemeral"},
}
for name, kept in KEPT.items():
    schemas[name]["properties"] = {
        field: schema for field, schema in schemas[name]["properties"].items() if field in kept
    }
schemas["Command"]["properties"]["argv"] = {"enum": COMMANDS}
schemas["Command"]["properties"]["environment"] = {"enum": [{}, {"A": "b"}]}
for name, field in (("Command", "argv"), ("ExecRequest", "command"), ("StartProcessRequest", "command"), ("RunRequest", "command")):
    schemas[name].setdefault("required", []).append(field)
# Nothing is sent anywhere but to a closed door of this machine.
schemas["CreateWebhookRequest"]["properties"]["url"] = {"enum": ["http://127.0.0.1:9/hook", "nonsense"]}
# A working directory that nobody may enter would be no test of the others.
schemas["ChangeModeRequest"]["properties"]["path"] = {"enum": ["a.txt", "/tmp/new", "/nothing", ""]}
json.dump(document, sys.stdout)
