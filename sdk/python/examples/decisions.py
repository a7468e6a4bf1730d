"""This program decides what a sandbox reaches, and gives its requests a credential that the sandbox never sees."""

from __future__ import annotations

from belljar import Belljar, Connection, Request, RequestVerdict, Verdict


def decide(connection: Connection) -> Verdict:
    # `name` is what our own DNS was asked for, or gave the address for: never what a header says.
    if connection.name != "api.example.com":
        return connection.deny("not on the list")
    return connection.accept() if connection.is_dns else connection.accept_http()


def handle(request: Request) -> RequestVerdict:
    if request.method != "GET":
        return request.deny("this sandbox only reads")
    return request.accept({"authorization": "Bearer a-token-of-the-host"})


with Belljar() as client, client.sandboxes.create(on_connection=decide, on_request=handle) as sandbox:
    sandbox.run("getent hosts tracker.example")
    for decision in sandbox.network.log():
        print(decision.host, decision.verdict, decision.reason, (decision.rule or "").removeprefix("callback: "))
