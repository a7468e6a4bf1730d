// Secrets reach what they are for, over TLS, and nobody inside: in an internet of the test's own, which both SDKs share.
import assert from "node:assert/strict";
import { execFile, execFileSync } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { BINARY, cleanUp, environment } from "./server.js";

const WORLD = process.env["BELLJAR_TEST_WORLD_SCRIPT"] ?? "";
const tools = ["ip", "unshare", "nsenter", "openssl", "python3"];
const missing =
  process.getuid?.() !== 0 || WORLD === "" || !tools.every(there)
    ? "a network namespace needs root, iproute2, util-linux, openssl and python3"
    : false;
if (missing) console.log(`SKIPPED typescript secrets: ${missing}`);

function there(tool: string): boolean {
  try {
    execFileSync("sh", ["-c", `command -v ${tool}`]);
    return true;
  } catch {
    return false;
  }
}

test(
  "a request gets the secret of this process or of the store, and the sandbox does not",
  { skip: missing },
  async () => {
    const here = await mkdtemp(join(tmpdir(), "belljar-secrets-"));
    const [certificate, key] = [join(here, "certificate.pem"), join(here, "key.pem")];
    const run = promisify(execFile);
    const name = ["-subj", "/CN=secure.test", "-addext", "subjectAltName=DNS:secure.test"];
    const kind = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"];
    const files = ["-addext", "basicConstraints=critical,CA:FALSE", "-keyout", key, "-out", certificate];
    await run("openssl", ["req", ...kind, ...name, ...files]);
    const env = {
      ...environment(),
      BELLJAR_BINARY: BINARY,
      BELLJAR_STATE_DIR: here,
      BELLJAR_DNS_UPSTREAM: "11.0.0.53",
      BELLJAR_TLS_ROOTS: certificate,
      TEST_CERTIFICATE: certificate,
      TEST_KEY: key,
    };
    const scenario = fileURLToPath(new URL("world/secrets.js", import.meta.url));
    try {
      const words = ["python3", process.execPath, scenario];
      const { stdout } = await run(WORLD, words, { env, timeout: 300_000 });
      assert.equal(stdout, "given\nkept\n");
    } finally {
      await cleanUp(here);
      await rm(here, { recursive: true, force: true });
    }
  },
);
