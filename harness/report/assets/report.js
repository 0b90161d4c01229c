"use strict";
(() => {
  const root = document.documentElement;
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const colour = (name) => getComputedStyle(root).getPropertyValue(`--${name}`).trim();
  const narrow = () => window.innerWidth < 640;

  function role(meta) {
    if (meta === "good" || meta === "state-right") return colour("good");
    if (meta === "bad" || meta === "state-wrong") return colour("bad");
    if (meta === "state-partly" || meta === "mark") return colour("unsure");
    if (meta === "state-invalid") return colour("neutral");
    if (meta === "band") return colour("band");
    if (meta === "baseline") return colour("baseline");
    return colour(`run${Number(String(meta).slice(3)) % 8}`);
  }

  function dressed(figure) {
    const ink = colour("ink"), grid = colour("grid"), bg = colour("bg");
    const axis = (given) => ({
      automargin: true, gridcolor: grid, linecolor: grid, zeroline: false, ...given,
      title: { ...given?.title, standoff: 12 },
    });
    const traces = figure.traces.map((trace) => {
      const tone = role(trace.meta);
      return {
        ...trace,
        fillcolor: tone,
        textfont: { color: ink },
        line: { color: tone, ...trace.line },
        marker: { ...trace.marker, color: tone,
          ...(trace.type === "bar" ? { line: { color: bg, width: 1 } } : {}),
          ...(trace.type !== "bar" && String(trace.meta).startsWith("state-")
            ? { line: { color: trace.meta === "state-invalid" ? tone : bg, width: 2 } } : {}) },
      };
    });
    const layout = {
      ...figure.layout,
      xaxis: axis(figure.layout.xaxis),
      yaxis: axis(figure.layout.yaxis),
      paper_bgcolor: bg,
      plot_bgcolor: bg,
      font: { color: ink, size: narrow() ? 11 : 13, family: getComputedStyle(document.body).fontFamily },
      margin: { l: narrow() ? 48 : 64, r: 16, t: 12, b: 48 },
      legend: { orientation: "h", y: -0.22, yanchor: "top", x: 0 },
      hoverlabel: { align: "left", bgcolor: colour("panel"), bordercolor: colour("line"),
        font: { color: ink } },
      hovermode: "closest",
      dragmode: narrow() ? false : "zoom",
    };
    return [traces, layout];
  }

  const config = {
    displaylogo: false, responsive: true, scrollZoom: false,
    displayModeBar: false, doubleClick: "reset",
  };

  function plain(text) {
    return String(text).replace(/<br>/g, "; ").replace(/<\/?(b|extra)>/g, "")
      .replace(/&lt;/g, "<").replace(/&gt;/g, ">").replace(/&amp;/g, "&");
  }

  function walk(box, figure, said) {
    let curve = figure.traces.findIndex((t) => t.hoverinfo !== "skip");
    let point = -1;
    const open = (i) => figure.traces[i] && figure.traces[i].hoverinfo !== "skip";
    box.addEventListener("keydown", (event) => {
      const sideways = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      const updown = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (event.key === "Escape") { Plotly.Fx.unhover(box); said.textContent = ""; return; }
      if (sideways === undefined && updown === undefined) return;
      event.preventDefault();
      if (updown !== undefined) {
        const count = figure.traces.length;
        for (let step = 1; step <= count; step += 1) {
          const next = (curve + updown * step + count * step) % count;
          if (open(next)) { curve = next; point = 0; break; }
        }
      } else {
        const count = figure.traces[curve].x.length;
        point = Math.min(Math.max(point + sideways, 0), count - 1);
      }
      const trace = figure.traces[curve];
      Plotly.Fx.hover(box, [{ curveNumber: curve, pointNumber: point }]);
      const words = (trace.customdata || trace.text || [])[point];
      const value = `${trace.x[point]}: ${trace.y[point]}`;
      said.textContent = `${plain(trace.name)}, ${words === undefined ? value
        : trace.customdata || trace.type === "bar" ? plain(words) : `${value}, ${plain(words)}`}`;
    });
  }

  function draw(first) {
    for (const figure of figures) {
      const box = document.getElementById(`plot-${figure.name}`);
      const [traces, layout] = dressed(figure);
      Plotly.react(box, traces, layout, config);
      if (!first) continue;
      walk(box, figure, document.getElementById(`said-${figure.name}`));
      const fold = box.closest("details.folded");
      if (fold) fold.addEventListener("toggle", () => Plotly.Plots.resize(box));
    }
    root.dataset.drawn = String(figures.length);
  }

  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const button = document.getElementById("theme");
  const isDark = () => (root.dataset.theme || (dark.matches ? "dark" : "light")) === "dark";
  const label = () => { button.textContent = isDark() ? "Light colours" : "Dark colours"; };
  button.hidden = false;
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    label();
    draw(false);
  });
  dark.addEventListener("change", () => { label(); draw(false); });
  label();
  draw(true);
})();
