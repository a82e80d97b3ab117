// Draws each chart when it is first shown: a closed run costs nothing.
{
  const specs = JSON.parse(document.getElementById("charts").textContent);
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  const shades = (dark) => {
    const text = dark ? "#e6e8ea" : "#1a1d21";
    const line = dark ? "#3a3f45" : "#d4d7db";
    return {
      background: "transparent",
      axis: { labelColor: text, titleColor: text, gridColor: line, domainColor: line, tickColor: line },
      legend: { labelColor: text, titleColor: text },
      text: { color: text },
    };
  };
  // The line of the limit is black, which nobody would see on a dark page.
  const shaded = (spec) => (scheme.matches ? JSON.parse(JSON.stringify(spec).replaceAll('"#000000"', '"#e6e8ea"')) : spec);
  const options = {
    actions: false, // its menu opens other sites
    ast: true, // expressions are interpreted, so that the page need not allow eval
    renderer: "svg",
    defaultStyle: false,
    tooltip: { disableDefaultStyle: true },
  };
  const draw = (place) => {
    if (place.dataset.drawn) return;
    place.dataset.drawn = "yes";
    const config = shades(scheme.matches);
    vegaEmbed(place, shaded(specs[Number(place.dataset.chart)]), { ...options, config }).catch(() => {
      place.textContent = "This chart could not be drawn; the tables have its figures.";
    });
  };
  const visible = (root) => {
    for (const place of root.querySelectorAll("[data-chart]")) {
      const closed = place.parentElement.closest("details:not([open])");
      if (!closed) draw(place);
    }
  };
  for (const folded of document.querySelectorAll("details")) {
    folded.addEventListener("toggle", () => {
      if (folded.open) visible(folded);
    });
  }
  scheme.addEventListener("change", () => {
    for (const place of document.querySelectorAll("[data-drawn]")) delete place.dataset.drawn;
    visible(document);
  });
  visible(document);
}
