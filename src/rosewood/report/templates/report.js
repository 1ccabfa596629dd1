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

  // Charts are drawn shortly before they come into view, so that a page of many opens at once.
  const near = new IntersectionObserver(
    (found) => found.filter((each) => each.isIntersecting).forEach((each) => (near.unobserve(each.target), draw(each.target))),
    { rootMargin: "1200px" },
  );
  places.forEach((place) => near.observe(place));

  // Paper is narrower than most screens, and layout for it comes too late for the charts to ask.
  const widen = (size) => places.forEach((place) => Plotly.relayout(place, size(place)));
  const opened = [];
  addEventListener("beforeprint", () => {
    places.forEach(draw);
    widen((place) => ({ width: place.closest(".small") ? 300 : 640 }));
    document.querySelectorAll("details:not([open])").forEach((each) => ((each.open = true), opened.push(each)));
  });
  addEventListener("afterprint", () => {
    opened.splice(0).forEach((each) => (each.open = false));
    widen(() => ({ width: null, autosize: true }));
  });
}
