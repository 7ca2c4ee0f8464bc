/* The chart of memory over time: shows values under the pointer, or by arrow keys. */

/* Shows the values of `points` under the pointer on the chart `svg`, or by arrow keys. */
const timeline = (svg, points) => {
  const cross = $(".cross", svg), status = $(".status", svg.parentElement);
  const used = points.series[0][1];
  let at = 0;
  const value = (series, t) => {
    let low = 0, high = series.length - 1, found = null;
    while (low <= high) { const middle = (low + high) >> 1; if (series[middle][0] <= t) { found = series[middle][1]; low = middle + 1; } else high = middle - 1; }
    return found;
  };
  const show = (t) => {
    const x = points.left + (t / points.end) * (points.right - points.left);
    cross.removeAttribute("hidden");
    $("line", cross).setAttribute("x1", x);
    $("line", cross).setAttribute("x2", x);
    const texts = points.series.map(([name, series]) => [name, value(series, t)]).filter(([, v]) => v !== null);
    status.textContent = `${t.toFixed(3)} s: ` + texts.map(([name, v]) => `${name} ${v.toLocaleString("en-US", { maximumFractionDigits: 1 })} ${points.unit}`).join(", ");
  };
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect(), x = ((event.clientX - box.left) / box.width) * 1000;
    show(Math.max(0, Math.min(points.end, ((x - points.left) / (points.right - points.left)) * points.end)));
  });
  svg.addEventListener("pointerleave", () => { cross.setAttribute("hidden", ""); status.textContent = ""; });
  svg.addEventListener("keydown", (event) => {
    const steps = { ArrowLeft: -1, ArrowRight: 1, Home: -used.length, End: used.length, PageUp: -20, PageDown: 20 };
    if (!(event.key in steps)) return;
    event.preventDefault();
    at = Math.max(0, Math.min(used.length - 1, at + steps[event.key]));
    show(used[at][0]);
  });
};
