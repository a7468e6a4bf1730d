// This program decides what a sandbox reaches, and gives its requests a credential that the sandbox never sees.
import { defineSandbox, network } from "belljar";

const definition = defineSandbox({
  network: network.policy((connection) => {
    if (connection.matchDns()?.name.endsWith(".example.com")) return void connection.accept();
    connection.matchHttp("api.example.com")?.accept((request) => {
      if (request.method !== "GET") return request.deny("this sandbox only reads");
      request.headers.set("authorization", "Bearer a-token-of-the-host");
    });
  }),
});

await using lane = await definition.boot();
// Nobody accepts this name, so nobody outside is asked for it.
await lane.exec("getent hosts tracker.example");
for await (const { host, verdict, reason } of lane.sandbox.network.log()) console.log(host, verdict, reason);
