(async () => {
  "use strict";
  const $ = (id) => document.getElementById(id);
  const data = JSON.parse($("data").textContent);
  const english = (value) => value.toLocaleString("en-US");
  const exact = (text) => english(BigInt(text));

  // The same as `share` in tables.py.
  const share = (ratio) => {
    if (ratio > 0 && ratio < 0.0001) return "<0.01%";
    if (ratio > 0.999 && ratio < 1) return ">99.9%";
    return (100 * ratio).toFixed(ratio > 0 && ratio < 0.1 ? 2 : ratio > 0 && ratio < 1 ? 1 : 0) + "%";
  };
  const picked = (name) => document.querySelector(`input[name=${name}]:checked`).value;

  // The slider, which needs no library.

  let place = data.stops.indexOf(data.start);
  let draw = { stop: () => {}, lengths: () => {}, padding: () => {}, all: () => {} };

  function show() {
    const stop = data.stops[place];
    const [longer, beyond] = [data.longer[place], data.beyond_stop[place]];
    $("stop").value = place;
    $("stop").setAttribute("aria-valuetext", english(stop));
    $("at").textContent = english(stop);
    $("longer").textContent = exact(longer);
    $("longer-share").textContent = share(Number(longer) / data.documents);
    $("beyond").textContent = exact(beyond);
    $("beyond-share").textContent = share(Number(beyond) / data.tokens);
    $("less").disabled = place === 0;
    $("more").disabled = place === data.stops.length - 1;
    for (const chip of document.querySelectorAll("[data-stop]")) {
      chip.setAttribute("aria-pressed", Number(chip.dataset.stop) === stop);
    }
    draw.stop();
  }

  function go(to) {
    place = Math.min(Math.max(to, 0), data.stops.length - 1);
    show();
  }

  for (const part of document.querySelectorAll(".js")) part.hidden = false;
  $("stop").max = data.stops.length - 1;
  $("stop").addEventListener("input", (event) => go(Number(event.target.value)));
  $("less").addEventListener("click", () => go(place - 1));
  $("more").addEventListener("click", () => go(place + 1));
  for (const chip of document.querySelectorAll("[data-stop]")) {
    chip.addEventListener("click", () => go(data.stops.indexOf(Number(chip.dataset.stop))));
  }
  show();

  if (data.steep) document.querySelector("input[name=y][value=log]").checked = true;

  // One table at a time.

  const choose = $("choose");
  if (choose) {
    const pick = () => {
      for (const table of document.querySelectorAll(".at")) table.hidden = table.dataset.length !== choose.value;
    };
    choose.addEventListener("change", pick);
    pick();
  }

  // Tables open where the recommended one is.
  for (const cell of document.querySelectorAll(".heat td.best")) {
    const box = cell.closest(".scroll");
    box.scrollLeft = cell.offsetLeft + cell.offsetWidth - box.clientWidth;
  }

  // The library.

  try {
    const packed = Uint8Array.from(atob($("plotly").textContent), (character) => character.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
    const script = document.createElement("script");
    script.textContent = await new Response(stream).text();
    document.head.append(script);
    if (!window.Plotly) throw new Error("the library did not start");
  } catch (error) {
    for (const plot of document.querySelectorAll(".plot")) {
      plot.className = "note";
      plot.textContent = `No chart: this browser is too old for it (${error.message}).`;
    }
    return;
  }

  // Charts. On a log axis of lengths x is log2, so that powers of two are its ticks.

  const CONFIG = { displayModeBar: false, displaylogo: false, responsive: true, scrollZoom: false, doubleClick: false };
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const short = (value) => {
    if (value >= 1 << 20 && value % (1 << 20) === 0) return value / (1 << 20) + "M";
    return value >= 1024 && value % 1024 === 0 ? value / 1024 + "k" : english(value);
  };

  function powers(from, to, room) {
    const step = Math.max(1, Math.ceil((to - from) / Math.max(2, room)));
    const at = [];
    for (let power = Math.ceil(from / step) * step; power <= to; power += step) at.push(power);
    return { tickmode: "array", tickvals: at, ticktext: at.map((power) => short(2 ** power)) };
  }

  function layout(more) {
    const axis = { fixedrange: true, gridcolor: css("--line"), linecolor: css("--line"), zeroline: false, automargin: true };
    return {
      font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: css("--fg") },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      dragmode: false,
      showlegend: false,
      hoverlabel: { bgcolor: css("--panel"), bordercolor: css("--line"), font: { color: css("--fg") } },
      ...more,
      margin: { l: 8, r: 12, t: 12, b: 8, ...more.margin },
      xaxis: { ...axis, showgrid: false, ...more.xaxis },
      yaxis: { ...axis, ...more.yaxis },
    };
  }

  const title = (text) => ({ text, standoff: 6, font: { size: 13, color: css("--soft") } });
  const room = (id) => Math.floor($(id).clientWidth / 55);
  const scale = (log) => (log ? Math.log2 : (value) => value);

  // Where the slider stands: what is right of it would be cut.
  function cutting(log, end) {
    const x = scale(log)(data.stops[place] + (log === null ? 0 : 0.5));
    const line = { type: "line", x0: x, x1: x, yref: "paper", y0: 0, y1: 1, line: { color: css("--cut"), width: 2 } };
    if (x >= end) return log === null ? [line] : [];
    const rest = { type: "rect", x0: x, x1: end, yref: "paper", y0: 0, y1: 1, line: { width: 0 }, fillcolor: css("--cut-fill") };
    return [rest, line];
  }

  // Percentile marks, their names above each other where they would touch.
  function marks(log, from, to) {
    const groups = [];
    for (const [name, value] of data.percentiles) {
      const last = groups.at(-1);
      if (last && last.value === value) last.names.push(name);
      else groups.push({ names: [name], value });
    }
    const ends = [];
    const shapes = [];
    const annotations = [];
    for (const { names, value } of groups) {
      const x = scale(log)(value);
      const text = names.length > 1 ? `${names[0]}–${names.at(-1)}` : names[0];
      const half = (text.length * 4.5 + 5) / Math.max(200, $("lengths").clientWidth - 70);
      const middle = Math.min(Math.max((x - from) / (to - from), half), 1 - half);
      let level = ends.findIndex((end) => end <= middle - half);
      if (level < 0) level = ends.length;
      ends[level] = middle + half;
      shapes.push({
        type: "line", x0: x, x1: x, yref: "paper", y0: 0, y1: 1, line: { color: css("--soft"), width: 1, dash: "dot" },
      });
      annotations.push({
        x: from + middle * (to - from), yref: "paper", y: 1, yanchor: "bottom", yshift: 15 * level,
        text, showarrow: false, font: { size: 12, color: css("--soft") },
      });
    }
    return { shapes, annotations, levels: ends.length };
  }

  let fixed = [];
  let end = 0;

  draw.lengths = () => {
    const [log, logy] = [picked("x") === "log", picked("y") === "log"];
    const { edges, counts } = log ? data.log : data.linear;
    const at = edges.map((edge) => scale(log)(edge - 0.5));
    const wide = (at.at(-1) - at[0]) * 0.02 + 1e-9;
    const from = at[0] - wide;
    end = at.at(-1) + wide;
    const { shapes, annotations, levels } = marks(log, from, end);
    fixed = shapes;
    const most = Math.max(...counts);
    const least = Math.min(...counts.filter((count) => count > 0));
    const bars = {
      type: "bar",
      x: counts.map((_, i) => (at[i] + at[i + 1]) / 2),
      width: counts.map((_, i) => at[i + 1] - at[i]),
      y: counts,
      marker: { color: css("--bar"), line: { width: 0 } },
      hovertext: counts.map((count, i) => {
        const tokens = edges[i + 1] - 1 > edges[i] ? `${english(edges[i])} – ${english(edges[i + 1] - 1)}` : english(edges[i]);
        return `${tokens} tokens<br>${english(count)} documents (${share(count / data.documents)})`;
      }),
      hovertemplate: "%{hovertext}<extra></extra>",
    };
    const floor = Math.log10(least) - 0.3;
    const ticks = log ? powers(from, end, room("lengths")) : { nticks: room("lengths"), separatethousands: true };
    Plotly.react("lengths", [bars], layout({
      bargap: 0,
      hovermode: "x",
      margin: { t: 6 + 15 * levels },
      separators: ".,",
      xaxis: { range: [from, end], title: title("tokens of a document"), ticks: "outside", tickcolor: css("--line"), ...ticks },
      yaxis: {
        type: logy ? "log" : "linear",
        range: logy ? [floor, Math.max(Math.log10(most) + 0.1, floor + 1)] : [0, most * 1.05],
        title: title("documents"),
        ...(logy ? { dtick: 1, tickformat: "~s" } : { nticks: 6, tickformat: most < 10000 ? ",d" : "~s" }),
      },
      shapes: [...cutting(log, end), ...shapes],
      annotations,
    }), CONFIG);
    $("overflow").hidden = log || !data.beyond;
    $("overflow").textContent =
      `${english(data.beyond)} documents (${share(data.beyond / data.documents)}) are longer than the chart shows, ` +
      `up to ${english(data.max)} tokens.`;
  };

  draw.truncation = () => {
    const x = data.stops.map(Math.log2);
    const line = (name, values, all, color, dash) => ({
      type: "scatter", mode: "lines", name, x, y: values.map((value) => Number(value) / all),
      line: { color, width: 2.5, dash },
      hovertext: values.map((value) => `${exact(value)} (${share(Number(value) / all)})`),
      hovertemplate: `%{hovertext} ${name}<extra></extra>`,
    });
    Plotly.react("truncation", [
      line("documents cut", data.longer, data.documents, css("--bar"), "solid"),
      line("tokens lost", data.beyond_stop, data.tokens, css("--cut"), "dash"),
    ], layout({
      hovermode: "x",
      showlegend: true,
      legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", itemclick: false, itemdoubleclick: false },
      margin: { t: 36 },
      xaxis: {
        title: title("max_length"), range: [x[0], x.at(-1)], ticks: "outside", tickcolor: css("--line"),
        ...powers(x[0], x.at(-1), room("truncation")),
      },
      yaxis: { title: title("of all"), tickformat: "~%", rangemode: "tozero", nticks: 6 },
      shapes: cutting(null, Infinity).slice(-1).map((shape) => ({ ...shape, x0: x[place], x1: x[place] })),
    }), CONFIG);
  };

  draw.stop = () => {
    Plotly.relayout("lengths", { shapes: [...cutting(picked("x") === "log", end), ...fixed] });
    const x = Math.log2(data.stops[place]);
    Plotly.relayout("truncation", { "shapes[0].x0": x, "shapes[0].x1": x });
  };

  // Padded in warm colours with full lines, packed in cool ones with broken lines; all told apart by marks as well.
  const STYLES = {
    static: ["#d55e00", "solid", "circle"],
    dynamic: ["#e69f00", "solid", "square"],
    bucketed: ["#cc79a7", "solid", "diamond"],
    "token-budget": ["#8c7a6b", "solid", "triangle-up"],
    bfd: ["#2186cc", "solid", "star"],
    ffd: ["#56b4e9", "dash", "x"],
    "first-fit": ["#009e73", "dot", "cross"],
    wrapped: ["#7b6fd0", "dashdot", "triangle-down"],
  };

  draw.padding = () => {
    const log = picked("pad") === "log";
    const lowest = Math.min(0.1, ...data.strategies.flatMap(({ y }) => y.filter((value) => value > 0)));
    const bottom = Math.max(Math.floor(Math.log10(lowest)), -5);
    const values = (y) => (log ? y.map((value) => Math.max(value, 10 ** bottom)) : y);
    const axis = {
      title: title("padding"), type: log ? "log" : "linear", range: log ? [bottom - 0.1, 0.1] : [-0.02, 1.02],
      ...(log ? { dtick: 1, tickformat: "~%" } : { tickformat: ".0%", nticks: 6 }),
    };
    const style = (name) => STYLES[name] || [css("--fg"), "solid", "circle-open"];
    const lengths = [...new Set(data.strategies.flatMap(({ x }) => x))].sort((a, b) => a - b);
    const lines = data.strategies.map(({ name, x, y }) => ({
      type: "scatter", mode: "lines+markers", name, x: x.map(Math.log2), y: values(y),
      line: { color: style(name)[0], dash: style(name)[1], width: 2 },
      marker: { color: style(name)[0], symbol: style(name)[2], size: 9 },
      hovertext: y.map(share),
      hovertemplate: `${name}: %{hovertext}<extra></extra>`,
    }));
    const names = data.strategies.map(({ name }) => name).reverse();
    const first = Object.fromEntries(data.strategies.map(({ name, y }) => [name, y[0]]));
    const bars = {
      type: "bar", orientation: "h", y: names, x: values(names.map((name) => first[name])),
      base: log ? 10 ** (bottom - 0.1) : 0,
      marker: { color: names.map((name) => style(name)[0]) },
      text: names.map((name) => share(first[name])), textposition: "outside", cliponaxis: false,
      hoverinfo: "skip",
    };
    const shown = layout(lengths.length > 1 ? {
      hovermode: "closest",
      showlegend: true,
      legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", itemclick: "toggle", itemdoubleclick: false, font: { size: 12 } },
      xaxis: {
        title: title("max_length"), tickmode: "array", tickvals: lengths.map(Math.log2), ticktext: lengths.map(short),
      },
      yaxis: axis,
    } : {
      margin: { r: 48 },
      hovermode: false,
      xaxis: { ...axis, showgrid: true, range: log ? [bottom - 0.1, 0.2] : [0, 1.05] },
      yaxis: { showgrid: false },
    });
    if ($("padding")) Plotly.react("padding", lengths.length > 1 ? lines : [bars], shown, CONFIG);
  };

  draw.all = () => {
    draw.lengths();
    draw.truncation();
    draw.padding();
  };
  draw.all();
  for (const input of document.querySelectorAll("input[name=x], input[name=y]")) {
    input.addEventListener("change", () => draw.lengths());
  }
  for (const input of document.querySelectorAll("input[name=pad]")) input.addEventListener("change", () => draw.padding());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => draw.all());
  addEventListener("resize", () => draw.all());
  addEventListener("beforeprint", () => draw.all());
  addEventListener("afterprint", () => draw.all());
})();
