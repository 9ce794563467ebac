// A browser starts no worker for a page that was opened from the disk. There, the search runs in a hidden frame
// instead. `extra.polyfills` of mkdocs.yml names this file, so that no such script is loaded from a network.
"use strict";

if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inside = frame.contentWindow;
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      const script = inside.document.createElement("script");
      this.inside = inside;
      this.ready = new Promise((loaded) => script.addEventListener("load", loaded));
      script.src = new URL(url, location.href).href;
      inside.document.head.append(script);
    }

    postMessage(data) {
      this.ready.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
    }
  };
}
