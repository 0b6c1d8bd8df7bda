/** What the pages use of their vendored libraries. */
declare module "preact" {
  export type VNode = { type: unknown; props: Record<string, unknown>; key: unknown };
  export type Child = VNode | string | number | boolean | null | undefined | Child[];
  export function h(type: unknown, props: Record<string, unknown> | null, ...children: Child[]): VNode;
  export function render(node: VNode | VNode[], parent: Element): void;
}

declare module "preact/hooks" {
  type Update<T> = T | ((before: T) => T);
  export function useState<T>(initial: T | (() => T)): [T, (next: Update<T>) => void];
  export function useEffect(effect: () => void | (() => unknown), inputs?: readonly unknown[]): void;
  export function useLayoutEffect(effect: () => void | (() => unknown), inputs?: readonly unknown[]): void;
  export function useMemo<T>(make: () => T, inputs: readonly unknown[]): T;
  export function useRef<T>(initial: T): { current: T };
}

declare module "htm" {
  const htm: {
    bind<T>(make: (type: any, props: any, ...children: any[]) => T): (parts: TemplateStringsArray, ...values: any[]) => T;
  };
  export default htm;
}

declare module "dagre" {
  export class Graph {
    constructor(options?: { multigraph?: boolean; compound?: boolean });
    setGraph(options: Record<string, unknown>): void;
    setDefaultEdgeLabel(make: () => Record<string, unknown>): void;
    setNode(id: string, label: Record<string, unknown>): void;
    hasNode(id: string): boolean;
    setEdge(from: string, to: string, label: Record<string, unknown>, name: string): void;
    graph(): { width?: number; height?: number };
    node(id: string): { x: number; y: number; width: number; height: number };
    edges(): { v: string; w: string; name?: string }[];
    edge(name: { v: string; w: string; name?: string }): { points: { x: number; y: number }[]; label?: string };
  }
  export function layout(graph: Graph): void;
}
