/** Shapes that the pages' JSDoc names; kept here, they are not sent to browsers. */

/** A value that calls its listeners when it changes. */
type Signal<T> = { value: T; subscribe: (listen: (value: T) => void) => () => void };

/** What an address of the API answered; `of`: that address; `next`: the address of the next page. */
type Live<T> = { data: T | null; error: Error | null; of: string | null; next?: string };

type RunEvent = { seq: number; at: string; type: string; run_id: string; key: string | null; data: any };

/** Whether an event may change an answer. */
type Concerns = (event: RunEvent) => boolean;

/** How an address is kept up to date, in milliseconds. */
type Keeping = {
  /** Between polls of what no event reports. */
  pause: number;
  /** The same of what events report in part. */
  every: number;
  /** Events that concern the address. */
  on: Concerns;
  /** Long polls always, at most once in a page. */
  long: boolean;
};

/** An item of a stream of Server-Sent Events. */
type Item = { type: string; id: string; data: string };

/** One fault of a refused request. */
type Flaw = { path?: string; code?: string; message?: string };

/** A step as the run's answer shows it. */
type Step = any;

/** `finished`: steps by their number, with holes where none has been read. */
type RunState = { run: any; finished: (Step | undefined)[]; open: Step[] };

type Point = { x: number; y: number };

/** A node of a graph, or the place where an edge crosses a row. */
type Cell = { row: number; width: number; x: number; up: Cell[]; down: Cell[]; id?: string };

/** `width`: of the text at the edge. */
type Edge = { source: string; target: string; width: number };

/** Pixels of each node; `between`: those between two layers. */
type NodeSize = { width: number; height: number; between: number };

/** Cells of a row that would overlap apart. */
type Together = { sum: number; weight: number; count: number };

/** `points`: the way of an edge; `label`: where its text is. */
type Way = { points: Point[]; label: Point };

/** A bar of a chart; `parts`: lengths one behind the other; `unknown`: more was used than is known. */
type Bar = { name: string; parts: number[]; text: string; unknown?: boolean };

/** A field of the form of a recipe's arguments. */
type Field = {
  name: string;
  kind: "text" | "long" | "number" | "boolean" | "choice" | "list" | "json" | "any";
  label: string;
  help: string;
  required: boolean;
  initial: string | boolean;
  options: string[];
  path: boolean;
};

/** A document of rules: how it is read, what its table shows, and what a first one may hold. */
type RuleDocument = {
  title: string;
  path: string;
  /** What is shown without entries. */
  none: string;
  help: string;
  example: any;
  read: (document: any) => any[];
  columns: Columns;
};

/** Of a preflight; `others`: problems of no field; `faults`: how many problems are shown; `nodes`: the recipe's own steps, for a request that cannot be started yet. */
type PreflightProps = {
  report: any;
  error: Error | null;
  others: any[];
  faults: number;
  nodes: any[];
  count: string;
  lacks?: any[];
  children?: any;
};

/** Of an argument's field; `found`: what is taken where it is left empty; `offers`: files and folders can be chosen. */
type InputProps = {
  field: Field;
  offers: boolean;
  value: any;
  found?: any;
  fault?: string;
  warned?: string;
  unlisted: string[];
  onChange: (value: any) => void;
};

/** Of rows of which only some are in the page. */
type VirtualProps = {
  items: any[];
  row: (item: any, index: number) => any;
  name: (item: any) => string;
  depends?: any[];
  onNear?: (first: number, last: number) => void;
};

/** Of a table of runs; `to`: beginning of the address of a run's page. */
type RunTableProps = {
  runs: any[];
  chosen?: Set<string>;
  onChoose?: (id: string, on: boolean) => void;
  onNear?: (first: number, last: number) => void;
  to?: string;
};

type ConfirmProps = {
  title: string;
  confirm: string;
  danger?: boolean;
  blocked?: boolean;
  children?: any;
  onConfirm: () => any;
  onClose: () => void;
};

/** `word`: of the button and of its confirmation; `kind`: classes of the button. */
type AskedProps = { word: string; title?: string; kind?: string; danger?: boolean; children?: any; onConfirm: () => any };

/** Of what shows nodes; `denied`: step at which a person ended the run; `over`: nothing that was not reached will be. */
type Reached = { denied?: string; over?: boolean; onChoose: (node: any) => void };

type GraphProps = Reached & { graph: { nodes: any[]; edges: any[] }; plain?: boolean };

/** `plain`: there is no run. */
type NodeProps = Reached & { at: Point; node: any; plain: boolean };

/** What components take: a name means the same in each of them, or nearly. */
type Props = {
  actions?: any;
  /** Of a form: its arguments; null if it is not filled in. */
  args: () => Record<string, any> | null;
  /** A question is shown with its answer. */
  asks?: boolean;
  at: any;
  bars: Bar[];
  /** Labels that are there. */
  before?: Words;
  /** Of a preview: the order. */
  body: any;
  budget: any;
  busy: number;
  children?: any;
  chosen: any;
  columns: Columns;
  command?: string;
  /** Of a list's rows. */
  count?: number | string;
  /** Of a list: the button that shows more of it. */
  more?: any;
  denied: string;
  /** Of a step's drawer: the log that is shown in it. */
  log: string | null;
  names: string[];
  ended: any;
  error: Error | null;
  /** Of a fork: the step that is performed again first; of a duration: its start. */
  from?: any;
  gate: any;
  gates: any[] | null;
  /** A question that is not open any more. */
  gone?: boolean;
  /** A question on the page of its own run, whose head names the run. */
  own?: boolean;
  id: string;
  kind?: string;
  kinds: Limited[];
  label: string;
  lead?: any;
  limits: any;
  live: any;
  mine: (event: any) => boolean;
  name: any;
  /** What sends a run on that stands still, each with what happens then. */
  next?: boolean;
  note?: any;
  /** What is shown: a state, a run, a budget with its limits, uses, reserves and rests. */
  of: any;
  open: boolean;
  over: boolean;
  path: string;
  plans: any[];
  query: URLSearchParams;
  range: { from: number; to: number };
  recipe: any;
  /** Of outputs: only what a run that is done is there for: its files, or its last slot. */
  result?: boolean;
  retry?: () => void;
  rows: any[];
  run: any;
  runs: any[];
  /** Of a command: it is for this service, which keeps its project's data to itself. */
  served?: boolean;
  state: RunState;
  stats: any;
  step: any;
  steps: any[];
  text: string;
  title: any;
  to: string;
  value: string;
  values: Words;
  waiting: number;
  word?: string;
  onAll: () => void;
  onChange: (values: any) => void;
  onChoose?: (id: string, on: boolean) => void;
  onClose: () => void;
  onDecided?: () => void;
  onDone: (answer?: any) => void;
  /** `blocked`: an order would be refused, or do nothing. */
  onFound: (blocked: boolean) => void;
  onInput: (event: any) => void;
  onLabel: (labels: any) => any;
  onNear: (first: number, last: number) => void;
  onSave: (limits: any) => any;
  plan: any;
  proposal: any;
  review: any;
  task: any;
  trigger: any;
  total: any;
  calls: any[];
  opinions: any[];
  recipes: any[] | null;
  index: number;
  target?: string;
  by: string;
  days: string;
  shows: string;
  first: boolean;
  onGone: () => void;
  onIssued: (key: any) => void;
  onKept: () => void;
  onMade: (answer: any) => void;
};

/** Texts by their names. */
type Words = Record<string, string>;

/** Of a table: heading, cell, class. */
type Columns = [string, (row: any) => any, string?][];

/** Of functions: their parameters and results. */
type UseFault = () => [Error | null, (caught: any) => void];
/** Returns what acts, its fault, and what forgets the fault. */
type UseAct = (act: (given: any) => any) => [(event?: any) => Promise<void>, Error | null, () => void];
type Typed = (set: (value: string) => any) => (event: any) => any;
type UseFields = <T extends Record<string, any>>(
  initial: T,
) => [T, (name: string) => (event: any) => any, (values: T) => void];
type Each = (items: any[] | null | undefined, draw: (item: any, index: number) => any) => any;
type Options = (all: readonly (readonly string[])[], chosen: string) => any;
/** A missing item is a placeholder, and is asked for when it comes near. */
type DrawRow = (
  item: any,
  index: number,
  rows: WeakMap<object, { index: number; node: any }>,
  row: (item: any, index: number) => any,
  name: (item: any) => string,
) => any;
type Near = (frame: HTMLElement, height: number, count: number) => number[];
type Later = (load: () => Promise<any>, name: string) => (props: any) => any;
/** A page: pattern of its address, what draws it, its title. */
type Place = [string, (props: any) => any, string];
type FindPage = (path: string) => [(props: any) => any, Words, string];
type UseGate = (id: string, version?: unknown) => [any, Error | null];
/** Follow a log until its run has ended, through lost connections. */
type Tail = (
  path: string,
  stopped: AbortController,
  show: (change: (before: string | null) => string) => void,
) => Promise<void>;
type UseRunState = (path: string, id: string, answer: any) => [RunState | null, (first: number, last: number) => void];
/** Read a step's lines in the journal: near its number, and onwards until all that is known has been seen. */
type ReadStep = (runId: string, name: string, first: number, known: any[]) => Promise<any[]>;
/** `path`: of the newest runs; `second`: of the page after them. */
type UseOlder = (path: string, second: string) => { runs: any[]; error: Error | null; read: () => void };
/** What is sent for an order: paused runs and ended ones are resumed by different actions. */
type Actions = (asked: string, runs: any[]) => any[][];
/** The changes that a text asks for; a label of `before` whose line is gone is removed. */
type Changes = (text: string, before?: Words) => Record<string, string | null>;
type Beside = (flaws: any[], all: Field[]) => [Words, any[]];
type Initial = (id: string, all: Field[]) => { values: Record<string, any>; description: string };
type ReadForm = (
  all: Field[],
  values: Record<string, string | boolean>,
) => { args: Record<string, any>; faults: Words };

/** Of the reducer of a run's page. */
type Answered = (before: RunState | null, run: any) => RunState;
/** Whether the newest steps follow those that are known; after a resume some no longer count. */
type Continues = (before: RunState | null, newest: Step[], from: number) => before is RunState;
type Same = (known: Map<string, Step>, step: Step) => Step;
type WithOlder = (state: RunState, from: number, steps: Step[]) => RunState;
type Reduced = (state: RunState, event: RunEvent) => RunState;
type WithStatus = (state: RunState, event: RunEvent, status: string, others?: any) => RunState;
type Changed = (state: RunState, key: string | null, fields: any) => RunState;
/** `now`: milliseconds; without them, a silence is as long as it was when it was reported. */
type Sentence = (run: any, steps?: Step[], now?: number) => string;
/** Milliseconds; the end of a live run is ahead of now. */
type Span = (run: any, now: number) => { from: number; to: number };
type Placed = (
  step: { started_at: string; completed_at?: string | null },
  range: { from: number; to: number },
  now: number,
) => { left: number; width: number };

/** An order for runs: word, states in which it can be given, what happens then. */
type Order = [string, string[], (run: any) => string];

/** An order for a task that spends: word, path, body, what happens then. */
type Spending = [string, string, any, string];

/** What can be limited: its name, its unit in a form, and how an amount is written. */
type Limited = [string, string, (amount: number) => string];

/** An answer of this page to a gate. */
type Given = { decision: string; message: string; counts: boolean };

/** How a value is written. */
type OfText = (text: string) => string;
type OfNumber = (value: number) => string;
type OfAmount = (value: number | null | undefined) => string;

/** `now`: milliseconds. */
type Relative = (instant: string, now: number) => string;
/** Seconds that something took, or has taken until now; NaN if it has not begun. */
type Elapsed = (from: string | null | undefined, to: string | null | undefined, now: number) => number;

/** Of sums of usages; `none`: what is written without any. */
type Spent = (sums: any, none?: string) => string;
type Plural = (count: number, one: string, many?: string) => string;

/** As `useLive`. */
type UseList = (path: string, query?: any, how?: Partial<Keeping>) => any;

/** `of`: what the text is for. */
type UseDraft = (of: string) => [string, (text: string) => void];

/** Signatures of the functions of `lib`, by their names. */
declare namespace Do {
  // logs.js
  type stepLink = (key: string, log?: string) => string;
  type useLogs = (path: string | null, ended: string | null | undefined) => string[];
  /** The logs of a step's try; their names begin with its key, as a file may have it. */
  type logsOf = (names: string[], step: Step) => string[];
  // base.js
  type signal = <T>(value: T) => Signal<T>;
  type useValue = <T>(from: Signal<T>) => T;
  /** The present moment, every second anew while something goes on; else 0. */
  type useNow = (goesOn?: boolean) => number;
  /** Count on every second while the page is visible and what it shows is known. */
  type startClock = (isKnown: () => boolean) => void;
  type navigate = (to: string, options?: { replace?: boolean; state?: any }) => void;
  type setQuery = (changes: Record<string, string | null | undefined>) => void;
  type match = (pattern: string, path: string) => Words | null;
  // live.js
  type sessionHeader = () => Words;
  type keepSession = (key: string | null) => void;
  /** Send a request; throw a `Problem` if it is refused, and a `TypeError` if nobody answers. */
  type request = (method: string, path: string, options?: { body?: unknown; headers?: Words; signal?: AbortSignal }) => Promise<Response>;
  type get = (path: string) => Promise<any>;
  type nextOf = (reply: Response) => string;
  type post = (path: string, body?: unknown, headers?: Words) => Promise<any>;
  type change = (path: string, body: unknown) => Promise<any>;
  type remove = (path: string) => Promise<void>;
  /** The address of one thing of a kind. */
  type pathOf = (kind: string, id: string) => string;
  type withQuery = (path: string, query: Record<string, string | number | string[] | null | undefined>) => string;
  /** It returns how to hear no more. */
  type onEvents = (listen: (event: RunEvent | null) => void) => () => void;
  type tell = (event: RunEvent | null) => void;
  type take = (item: Item) => void;
  type sleep = (milliseconds: number, ended?: AbortSignal) => Promise<unknown>;
  type visible = (ended?: AbortSignal) => Promise<void>;
  /** Follow Server-Sent Events until they end or the page is hidden: a browser has six connections for all of its pages. By `fetch`, which can send the header of a sign-in where `EventSource` cannot. `last`: id of the last item seen. */
  type followStream = (path: string, last: string, ended: AbortController, take: (item: Item) => void, opened?: () => void) => Promise<void>;
  /** The whole items of a stream's text, and what is left of it. Pure. */
  type parsed = (text: string) => [Item[], string];
  /** Keep an address of the API up to date while the page is visible: it is read again after events that concern it. Without a path nothing is asked. */
  type useLive = (path: string | null, how?: Partial<Keeping>) => Live<any> & { refresh: (answer?: any) => void };
  type keep = (path: string, how: Keeping, ended: AbortSignal, show: (state: Live<any>) => void) => Promise<void>;
  // run_state.js
  type isOpen = (step: Step) => boolean;
  type nameOf = (step: Step) => string;
  /** Whether a step's try is among the newest finished ones: events may come twice, or after the answer that holds them. */
  type isFinished = (state: RunState, step: Step) => boolean;
  /** The older ones by their number, the newest as they began. */
  type rows = (state: RunState) => (Step | undefined)[];
  // layout.js
  /** A graph whose nodes inside a chain, and in the same state as their neighbours, are drawn as one. */
  type folded = (graph: { nodes: any[]; edges: any[] }) => { nodes: any[]; edges: any[] };
  /** `nodes`: their upper left corners. */
  type layered = (ids: string[], edges: Edge[], node: NodeSize) => { width: number; height: number; nodes: Map<string, Point>; edges: Way[] };
  type cell = (row: number, width: number, id?: string) => Cell;
  type at = (cells: Map<string, Cell>, id: string) => Cell;
  type ordered = (ids: string[], edges: Edge[]) => string[];
  type arrange = (rows: Cell[][]) => void;
  type crossings = (rows: Cell[][]) => number;
  type settle = (rows: Cell[][]) => void;
  /** Put cells as near to their wanted places as their order and widths allow: runs that would overlap share the mean. */
  type spread = (row: Cell[], wanted: number[]) => void;
  type mean = (values: number[]) => number | undefined;
  type way = (crossed: Cell[], backward: boolean, node: NodeSize, top: (cell: Cell) => number) => Way;
  type chain = (from: Cell, to: Cell, width: number, put: (cell: Cell) => void) => Cell[];
}
