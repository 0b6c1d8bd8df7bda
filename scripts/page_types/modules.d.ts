/** What the pages use of their vendored libraries. */
declare module "preact" {
  export type VNode = { type: unknown; props: Record<string, unknown>; key: unknown };
  export type Child = VNode | string | number | boolean | null | undefined | Child[];
  export function h(type: unknown, props: Record<string, unknown> | null, ...children: Child[]): VNode;
  /** `vnode` is called with each node that is made; of a text, `type` is null and `props` the text. */
  export const options: { vnode: (node: { type: unknown; props: any }) => void };
  export function render(node: VNode | VNode[], parent: Element): void;
}

declare module "preact/hooks" {
  type Update<T> = T | ((before: T) => T);
  /** What is not there yet may be anything. */
  export function useState(initial: null): [any, (next: any) => void];
  export function useState<T>(initial: T | (() => T)): [T, (next: Update<T>) => void];
  export function useEffect(effect: () => void | (() => unknown), inputs?: readonly unknown[]): void;
  export function useLayoutEffect(effect: () => void | (() => unknown), inputs?: readonly unknown[]): void;
  export function useMemo<T>(make: () => T, inputs: readonly unknown[]): T;
  /** Of an element that is drawn later. */
  export function useRef(initial: null): { current: HTMLElement | null };
  export function useRef<T>(initial: T): { current: T };
}

declare module "htm" {
  const htm: {
    bind<T>(make: (type: any, props: any, ...children: any[]) => T): (parts: TemplateStringsArray, ...values: any[]) => T;
  };
  export default htm;
}
