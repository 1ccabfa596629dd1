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

  // One at a time and from the top, so that the page answers while the rest is drawn.
  const drawFrom = (number) => {
    if (number === places.length) return;
    draw(places[number]);
    setTimeout(drawFrom, 0, number + 1);
  };
  drawFrom(0);

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
