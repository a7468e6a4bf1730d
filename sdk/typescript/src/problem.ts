// What every failure is. Its own file, so that the generated classes can build on it.

/** What a policy answered. */
export interface PolicyDecision {
  readonly verdict: string;
  /** The rule that decided; absent: the default. */
  readonly rule: string | null;
  /** The rule's own words. */
  readonly message: string;
  /** Of the policy. */
  readonly digest: string;
}

/** Why something failed, as the server tells it. */
export interface Problem {
  /** Stable; docs/reference/errors.md lists them. */
  readonly code: string;
  /** What failed, with its name. */
  readonly message: string;
  /** Why; an error of this process where the failure came from here. */
  readonly cause?: unknown;
  /** What to do about it. */
  readonly remedy?: string | undefined;
  /** Where the code is explained. */
  readonly docs?: string | undefined;
  /** For logs and support. */
  readonly requestId?: string | undefined;
  /** Where it is a policy that refuses. */
  readonly decision?: PolicyDecision | null | undefined;
  /** Seconds after which asking again makes sense. */
  readonly retryAfter?: number | undefined;
}

/** Every failure of this package. There is a subclass for each code. */
export class BelljarError extends Error {
  override readonly name: string = "BelljarError";
  readonly code: string;
  readonly remedy: string | undefined;
  readonly docs: string | undefined;
  readonly requestId: string | undefined;
  readonly retryAfter: number | undefined;
  /** What a policy answered, where it is a policy that refuses. */
  readonly decision: PolicyDecision | undefined;

  constructor(problem: Problem) {
    const { message, cause } = problem;
    super(message, cause === undefined || cause === "" ? undefined : { cause });
    this.code = problem.code;
    this.remedy = problem.remedy || undefined;
    this.docs = problem.docs || undefined;
    this.requestId = problem.requestId || undefined;
    this.retryAfter = problem.retryAfter;
    this.decision = problem.decision ?? undefined;
  }
}
