// A page that is opened from the disk may not start a Worker: a hidden frame takes its place, so that search works there.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.appendChild(this.frame);
      const inside = this.frame.contentWindow;
      let started;
      this.ready = new Promise((done) => (started = done));
      this.heard = (event) => {
        if (event.source !== inside) return;
        if (event.data === "started") return started();
        this.dispatchEvent(new MessageEvent("message", { data: event.data }));
        if (this.onmessage) this.onmessage(event);
      };
      window.addEventListener("message", this.heard);
      const say = (data) => parent.postMessage(data, "*");
      const load = (...urls) =>
        urls.reduce(
          (before, next) =>
            before.then(
              () =>
                new Promise((done) => {
                  const script = document.createElement("script");
                  script.src = next;
                  script.onload = done;
                  document.body.appendChild(script);
                }),
            ),
          Promise.resolve(),
        );
      inside.document.open();
      inside.document.write(
        `<html><body><script>postMessage = ${say}; importScripts = ${load}<\/script>` +
          `<script src="${url}"><\/script><script>parent.postMessage("started", "*")<\/script></body></html>`,
      );
      inside.document.close();
    }
    postMessage(data) {
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
    }
    terminate() {
      window.removeEventListener("message", this.heard);
      this.frame.remove();
    }
  };
}
