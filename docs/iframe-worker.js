// A Worker for pages that are opened as files, where a browser starts none: its script runs in a hidden frame instead.
// The site's search needs one. It is written here because the site fetches nothing, and theme plugins would fetch theirs.
if (location.protocol === "file:") {
  const load = (frame, url) => new Promise((loaded, failed) => {
    const script = frame.document.createElement("script");
    Object.assign(script, { src: url, onload: loaded, onerror: () => failed(new Error(`cannot load ${url}`)) });
    frame.document.body.append(script);
  });

  window.Worker = class extends EventTarget {
    #element = Object.assign(document.createElement("iframe"), { hidden: true });
    #ready;

    constructor(url) {
      super();
      document.body.append(this.#element);
      const frame = this.#element.contentWindow;
      // Opened anew, the frame has this page's address, from which its script reads others.
      frame.document.open();
      frame.document.write("<!doctype html><body></body>");
      frame.document.close();
      frame.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data: structuredClone(data) }));
      frame.importScripts = (...urls) => urls.reduce((before, each) => before.then(() => load(frame, each)), Promise.resolve());
      this.#ready = load(frame, url).then(() => frame);
    }

    postMessage(data) {
      const copy = structuredClone(data);
      this.#ready.then((frame) => frame.dispatchEvent(new frame.MessageEvent("message", { data: copy })));
    }

    terminate() {
      this.#element.remove();
    }
  };
}
