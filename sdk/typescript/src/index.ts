/**
 * Sealed, see-through computers for untrusted code.
 *
 * `new Belljar()` finds or starts the server of this machine, or takes the address of another one.
 */
export { type AuditOptions, type KeyOptions, Keys, Tenants, Webhooks } from "./administration.js";
export { Belljar, type EventOptions, type FetchStep } from "./client.js";
export type { ClientOptions } from "./connect.js";
export type { CommandOptions, RunOptions, StartOptions, TerminalSize, Words } from "./command.js";
export type { Secrets } from "./callbacks.js";
export {
  Connection,
  type ConnectionPolicy,
  type DnsMatch,
  type EndpointMatcher,
  type HttpCandidate,
  type HttpMatch,
  type HttpMatcher,
  HttpRequest,
  type Match,
  type Middleware,
  type Tls,
} from "./decide.js";
export { AbortedError, BelljarError, ConnectionLostError, type PolicyDecision, type Problem } from "./errors.js";
export * from "./generated/codes.js";
export {
  type ArchiveFormat,
  type Content,
  type FileEvent,
  Files,
  type ReadOptions,
  type SearchOptions,
  type WriteOptions,
} from "./files.js";
export { Forward, type ForwardOptions } from "./forward.js";
export type {
  Approval as ApprovalInfo,
  Artifact,
  AuditRecord,
  Caller,
  CopyFileResponse,
  Event,
  EventKind,
  ExecResponse as RunResult,
  Explanation,
  ExposedPort,
  FileInfo,
  FileKind,
  FindLeaksResponse,
  Finding,
  IssueTokenResponse,
  Isolation,
  Key,
  LayerChange,
  Leak,
  LearnPolicyResponse,
  Policy,
  PolicyDocument,
  Process as ProcessInfo,
  ProcessStatus,
  Probe,
  Profile,
  Quotas,
  QuotasInput,
  Reason,
  Sandbox as SandboxInfo,
  SandboxPolicy,
  SandboxNetwork as NetworkInfo,
  SandboxState,
  SearchHit,
  Secret,
  Server,
  Snapshot,
  Template,
  Tenant,
  Usage,
  Webhook,
  WriteArchiveResponse,
} from "./generated/api.js";
export type { CreateOptions, Limits, NetworkMode, Size } from "./options.js";
export { Policies, type PolicyChoice } from "./policy.js";
export { type LogOptions, type Offsets, type Output, Process } from "./process.js";
export { Endpoint } from "./ranges.js";
export { Approval, type NetworkChange, type NetworkDecision, SandboxNetwork } from "./reach.js";
export { type ListProcessesOptions, Sandbox, type SignalOptions, type SnapshotOptions } from "./sandbox.js";
export { type ListOptions, Sandboxes } from "./sandboxes.js";
export { SecretStore } from "./secrets.js";
export { type ListSnapshotsOptions, Snapshots } from "./snapshots.js";
export { type Tool, type ToolContext, type Tools, tool } from "./tools.js";
export type { TreeReport } from "./tree.js";
export { fromWire, toWire } from "./wire.js";
export {
  type BootOptions,
  type Definition,
  Lane,
  type Mount,
  type NetworkDefinition,
  type Rootfs,
  SandboxDefinition,
  defineSandbox,
  fs,
  network,
  rootfs,
} from "./define.js";
