// Draws each chart when it is first shown: a closed run costs nothing.
{
  const specs = JSON.parse(document.getElementById("charts").textContent);
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
    vegaEmbed(place, specs[Number(place.dataset.chart)], options).catch(() => {
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
  visible(document);
}
