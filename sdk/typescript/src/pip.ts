// Installing Python packages by name, and by nothing else: what a caller passes on may come from a model.
import { type BelljarError, errorOf, invalid } from "./errors.js";
import type * as api from "./generated/api.js";

/** A name, perhaps with extras and versions, as PEP 508 has them. Never an option, a path or a URL. */
const REQUIREMENT =
  /^[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?(?:\[[A-Za-z0-9._, -]+\])?\s*(?:(?:===?|~=|!=|<=?|>=?)\s*[A-Za-z0-9.*+!_-]+(?:\s*,\s*(?:===?|~=|!=|<=?|>=?)\s*[A-Za-z0-9.*+!_-]+)*)?$/;

const INDEX_HOSTS = ["pypi.org", "files.pythonhosted.org"];

export function pipCommand(packages: readonly string[]): string[] {
  if (packages.length === 0) throw invalid("no package is named", "name at least one");
  const wrong = packages.find((name) => name.length > 200 || !REQUIREMENT.test(name));
  if (wrong !== undefined) {
    throw invalid(`\`${wrong}\` is no name of a package`, "write names, with versions if need be: `requests==2.32.3`");
  }
  return ["python3", "-m", "pip", "install", "--user", "--no-input", "--disable-pip-version-check", "--", ...packages];
}

/** Why packages cannot be had in a sandbox: the hosts of the index that it may not reach, by their names. */
export function pipRefusal(info: api.Sandbox, network: api.SandboxNetwork): BelljarError | undefined {
  const reachable = (host: string): boolean => {
    const listed = (entries: readonly string[]): boolean => entries.some((entry) => covers(entry, host));
    return (
      (network.mode === "full" || (network.mode === "allowlist" && listed(network.allow))) && !listed(network.deny)
    );
  };
  const missing = INDEX_HOSTS.filter((host) => !reachable(host));
  if (missing.length === 0) return undefined;
  return errorOf({
    code: "conflicting-options",
    message: `sandbox \`${info.name ?? info.sandboxId}\` may not reach the index of packages`,
    cause: `not allowed: ${missing.join(", ")}`,
    remedy:
      network.mode === "none"
        ? `create it with \`allow: ${JSON.stringify(missing)}\` or \`profile: "packages"\``
        : `\`sandbox.network.allow(${missing.map((host) => JSON.stringify(host)).join(", ")})\``,
  });
}

/** Whether an entry of an allowlist names a host, on the port of HTTPS. */
function covers(entry: string, host: string): boolean {
  const [name = "", port = "443"] = entry.toLowerCase().split(":");
  if (port !== "443") return false;
  return name.startsWith("*.") ? host.endsWith(name.slice(1)) : name === host;
}
