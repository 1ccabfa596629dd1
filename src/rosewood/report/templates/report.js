"use strict";
{
  const places = [...document.querySelectorAll(".chart")];

  const draw = (place) => {
    const data = place.querySelector("script");
    if (!data) return;
    data.remove();
    const figure = JSON.parse(data.textContent);
    Plotly.newPlot(place, figure.data, figure.layout, { responsive: true, displayModeBar: false, scrollZoom: false });
  };

  // A chart is drawn a screen before it is reached, so that the page opens at once however many it has.
  const near = (entries) => {
    for (const { target } of entries.filter((each) => each.isIntersecting)) {
      watcher.unobserve(target);
      draw(target);
    }
  };
  const watcher = new IntersectionObserver(near, { rootMargin: "100%" });
  places.forEach((place) => watcher.observe(place));

  // Paper is narrower than most screens, and layout for it comes too late for the charts to ask.
  const resize = (size) => places.forEach((place) => Plotly.relayout(place, size(place)));
  const opened = [];
  addEventListener("beforeprint", () => {
    places.forEach(draw);
    resize((place) => ({ width: place.closest(".small") ? 300 : 640 }));
    document.querySelectorAll("details:not([open])").forEach((each) => ((each.open = true), opened.push(each)));
  });
  addEventListener("afterprint", () => {
    opened.splice(0).forEach((each) => (each.open = false));
    resize(() => ({ width: null, autosize: true }));
  });
}
