// Draws a report: filters, charts, timelines and a table that sorts. All figures are in the element `report`.
"use strict";
const report = JSON.parse(document.getElementById("report").textContent);
const column = Object.fromEntries(report.columns.map((one, at) => [one.name, at]));
const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
Chart.defaults.color = style("--ink");
Chart.defaults.borderColor = style("--grid");
Chart.defaults.animation = false;
Chart.defaults.maintainAspectRatio = false;

const make = (kind, parent, text, of) => {
    const made = Object.assign(document.createElement(kind), of || {});
    if (text !== undefined) made.textContent = text;
    parent.append(made);
    return made;
};
const shown = (value) => {
    if (value === null || value === undefined) return "–";
    if (typeof value !== "number") return String(value);
    if (Number.isInteger(value)) return value.toLocaleString("en", { useGrouping: Math.abs(value) >= 1e4 });
    return Math.abs(value) >= 1e-3 && Math.abs(value) < 1e6 ? String(+value.toPrecision(4)) : value.toExponential(3);
};
const cell = (row, name) => report.rows[row][column[name]];

// Columns that tell rows apart, and those that all rows agree on.
const differs = (at) => new Set(report.rows.map((row) => JSON.stringify(row[at]))).size > 1;
const isNumber = (at) => report.rows.some((row) => typeof row[at] === "number");
const isEmpty = (at) => report.rows.every((row) => row[at] === null);
const places = report.columns.map((_, at) => at);
const common = places.filter((at) => report.settings.includes(report.columns[at].name) && !differs(at) && !isEmpty(at) && report.rows.length > 1);
// The identity of a sweep is no heading.
common.sort((a, b) => (report.columns[a].name === "sweep") - (report.columns[b].name === "sweep"));
const listed = places.filter((at) => !common.includes(at) && !isEmpty(at));
const factors = listed.filter((at) => report.factors.includes(report.columns[at].name) && differs(at));

const state = { chosen: {}, text: "", order: null, down: false };
const passes = (row) => factors.every((at) => !(at in state.chosen) || JSON.stringify(report.rows[row][at]) === state.chosen[at])
    && (!state.text || report.rows[row].some((value) => shown(value).toLowerCase().includes(state.text)));
const passing = () => report.rows.map((_, row) => row).filter(passes);

const app = document.getElementById("page");
make("h1", app, report.title);
if (common.length) {
    const list = make("dl", app);
    for (const at of common) {
        make("dt", list, report.columns[at].name, { title: report.columns[at].about });
        make("dd", list, shown(report.rows[0][at]));
    }
}
const filters = make("div", app, undefined, { className: "filters" });
for (const at of factors) {
    const label = make("label", filters, report.columns[at].name, { title: report.columns[at].about });
    const select = make("select", label, undefined, { name: report.columns[at].name });
    make("option", select, "all", { value: "" });
    const values = [...new Map(report.rows.map((row) => [JSON.stringify(row[at]), row[at]])).entries()];
    values.sort((a, b) => (typeof a[1] === "number" ? a[1] - b[1] : String(a[1]).localeCompare(String(b[1]), "en", { numeric: true })));
    for (const [key, value] of values) make("option", select, shown(value), { value: key });
    select.onchange = () => {
        if (select.value) state.chosen[at] = select.value; else delete state.chosen[at];
        draw();
    };
}
if (report.rows.length > 1) {
    const label = make("label", filters, "search");
    const input = make("input", label, undefined, { type: "search", name: "search" });
    input.oninput = () => { state.text = input.value.toLowerCase(); draw(); };
    make("span", filters, undefined, { id: "count" });
}

// Charts: a line or a cloud for each combination of factors that the chart's x does not tell apart.
const zoom = (mode) => ({ zoom: { drag: { enabled: true }, wheel: { enabled: true, modifierKey: "ctrl" }, mode }, pan: { enabled: false } });
const charts = [];
const addChart = (parent, title, hint) => {
    const figure = make("figure", parent);
    make("h2", figure, title);
    const plot = make("div", figure, undefined, { className: "plot" });
    const canvas = make("canvas", plot);
    const caption = make("figcaption", figure, hint + " Drag to zoom; ");
    const reset = make("button", caption, "reset", { className: "reset" });
    return { plot, canvas, reset, key: make("ul", figure, undefined, { className: "legend" }) };
};
// An axis: its name with the unit in words, its ends and marks.
const axis = (about, reach) => ({
    type: about.log ? "logarithmic" : "linear",
    offset: false,
    grid: { offset: false },
    title: { display: true, text: about.unit ? `${about.name}, ${about.unit}` : about.name },
    ...(reach ? { min: reach.min, max: reach.max, afterBuildTicks: (scale) => {
        // Zoomed in, an axis gets marks of its own.
        const inside = reach.marks.filter((value) => scale.min <= value && value <= scale.max);
        if (inside.length > 1) scale.ticks = inside.map((value) => ({ value }));
    } } : {}),
    ticks: { callback: (value) => shown(+value.toPrecision(6)), maxTicksLimit: 9, autoSkip: true, autoSkipPadding: 6 },
});
const reach = (about, values, isCount) => (about.log ? logarithmic(values, isCount ? powers.twos : Math.max(...values) / Math.min(...values.filter((value) => value > 0)) > 1e4 ? powers.tens : powers.fives) : linear(values, isCount));

// A list of the series below a chart, each with a piece of its line.
const legend = (parent, sets) => {
    parent.replaceChildren();
    for (const set of sets) {
        const item = make("li", parent);
        const swatch = make("canvas", item, undefined, { width: 64, height: 24, className: "swatch" });
        const pen = swatch.getContext("2d");
        pen.scale(2, 2);
        pen.strokeStyle = pen.fillStyle = set.borderColor;
        pen.lineWidth = 1.5;
        if (set.showLine) {
            pen.setLineDash(set.borderDash);
            pen.beginPath();
            pen.moveTo(0, 6);
            pen.lineTo(32, 6);
            pen.stroke();
        }
        pen.setLineDash([]);
        Chart.helpers.drawPoint(pen, { pointStyle: set.pointStyle, rotation: set.rotation, radius: 3.5, borderWidth: 1 }, 16, 6);
        make("span", item, set.label);
    }
};
const grid = make("div", app, undefined, { className: "charts" });
for (const spec of report.charts) {
    const at = (row, about, name) => { const value = cell(row, name); return typeof value === "number" ? value * about.factor : null; };
    const drawn = (row) => spec.lines.some(([, y]) => at(row, spec.y, y) !== null) && (spec.kind === "histogram" || at(row, spec.x, spec.x.column) !== null);
    if (!report.rows.some((_, row) => drawn(row))) continue;
    const hints = { diagonal: "On the line both are equal.", histogram: "", cloud: "", lines: spec.lines.length > 1 ? `Thin: ${spec.lines[0][0]}.` : "" };
    const { canvas, reset, key } = addChart(grid, spec.title, hints[spec.kind]);
    const isLines = spec.kind === "lines", isHistogram = spec.kind === "histogram";
    const chart = new Chart(canvas, {
        type: isHistogram ? "bar" : "scatter",
        data: { datasets: [] },
        options: {
            scales: { x: axis(spec.x), y: axis(spec.y) },
            plugins: {
                zoom: zoom("xy"),
                legend: { display: false },
                tooltip: { callbacks: {
                    title: (items) => (isHistogram ? items.map((item) => item.raw.title) : []),
                    label: (item) => (isHistogram ? `${item.raw.y} rows` : item.raw.row === undefined ? "" : [item.dataset.label, ...factors.map((at) =>
                        `${report.columns[at].name} ${shown(report.rows[item.raw.row][at])}`), `${spec.x.name} ${shown(item.raw.x)}`, `${spec.y.name} ${shown(item.raw.y)}`]),
                } },
            },
        },
    });
    reset.onclick = () => chart.resetZoom();
    const fit = (points) => {
        let [x, y] = ["x", "y"].map((side) => reach(spec[side], points.map((point) => point[side]), isLines ? side === "x" : isHistogram && side === "y"));
        if (spec.kind === "diagonal") x = y = reach(spec.y, points.flatMap((point) => [point.x, point.y]), false);
        Object.assign(chart.options.scales, { x: axis(spec.x, x), y: axis(spec.y, y) });
        return [Math.max(x.min, y.min), Math.min(x.max, y.max)];
    };
    const histogram = (rows) => {
        const counted = rows.length ? bins(rows.map((row) => at(row, spec.x, spec.lines[0][1]))) : [];
        const places = counted.map(([begin, end, count]) => ({ x: (begin + end) / 2, y: count, title: `${shown(+begin.toPrecision(6))} to ${shown(+end.toPrecision(6))}` }));
        fit([...places, ...counted.flatMap(([begin, end]) => [{ x: begin, y: 0 }, { x: end, y: 0 }])]);
        chart.data.datasets = [{ label: "rows", data: places, backgroundColor: colours[0], barPercentage: 1, categoryPercentage: 0.94, grouped: false }];
        chart.options.parsing = { xAxisKey: "x", yAxisKey: "y" };
        chart.update();
    };
    charts.push(() => {
        const rows = passing().filter(drawn);
        if (isHistogram) return histogram(rows);
        const named = factors.filter((at) => report.columns[at].name !== spec.x.column);
        const by = spec.by ? [column[spec.by]].filter(differs)
            : isLines ? telling(rows.map((row) => report.rows[row]), column[spec.x.column], named) : named.filter((at) => !isNumber(at));
        // A single rank has no algorithm: it begins every line.
        const any = (row) => by.some((at) => report.rows[row][at] === "-");
        const groups = new Map();
        const value = (row, at) => (isNumber(at) ? `${report.columns[at].name.replaceAll("_", " ")} ` : "") + shown(report.rows[row][at]);
        const name = (row) => by.map((at) => value(row, at)).join(", ");
        const open = (row) => groups.get(name(row)) || groups.set(name(row), []).get(name(row));
        rows.filter((row) => !any(row)).forEach((row) => open(row).push(row));
        for (const row of rows.filter(any)) {
            const same = (other) => by.every((at) => report.rows[row][at] === "-" || report.rows[row][at] === report.rows[other][at]);
            const fitting = [...groups.values()].filter((members) => same(members[0]));
            (fitting.length ? fitting : [open(row)]).forEach((members) => members.push(row));
        }
        const sets = [...groups].flatMap(([group, members], number) => spec.lines.map(([line, y], side) => {
            const points = members.filter((row) => at(row, spec.y, y) !== null).map((row) => ({ x: at(row, spec.x, spec.x.column), y: at(row, spec.y, y), row }));
            points.sort((a, b) => a.x - b.x);
            // Lines of one group follow each other, so a chart of two lines has two looks for each group.
            const { colour, shape, turned, dash } = look(number * spec.lines.length + side);
            return {
                label: [group, spec.lines.length > 1 ? line : ""].filter((part) => part).join(", ") || line, data: points, borderColor: colour,
                backgroundColor: colour, showLine: isLines, borderWidth: spec.lines.length > 1 && side === 0 ? 1 : 2, pointRadius: 3.5,
                borderDash: dash, pointStyle: shape, rotation: turned,
            };
        }));
        legend(key, sets.length > 1 ? sets : []);
        const ends = fit(sets.flatMap((set) => set.data));
        const line = (label, data) => ({ label, data, showLine: true, borderColor: style("--soft"), borderWidth: 1, pointRadius: 0 });
        if (spec.kind === "diagonal" && rows.length) sets.push(line("equal", ends.map((end) => ({ x: end, y: end }))));
        chart.data.datasets = sets;
        chart.update();
    });
}

// Timelines of one step, one above the other on one scale of time; those of one configuration at a time.
const drawLines = (section, lines) => {
    const most = Math.max(...lines.sides.map((side) => Math.max(...side.bars.map((bar) => bar.end_ms))));
    const kinds = [...new Set(lines.sides.flatMap((side) => side.bars.map((bar) => bar.kind)))];
    return lines.sides.map((side, at) => {
        const last = at === lines.sides.length - 1;
        const figure = make("figure", section);
        const plot = make("div", figure, undefined, { className: "bars" });
        plot.style.height = `${(last ? 8 : 5) + 1.6 * side.lanes.length}rem`;
        const chart = new Chart(make("canvas", plot), {
            type: "bar",
            data: {
                labels: side.lanes,
                datasets: kinds.map((kind, number) => {
                    const bars = side.bars.filter((bar) => bar.kind === kind);
                    return {
                        label: kind, bars, grouped: false, barPercentage: .95, categoryPercentage: .95,
                        data: bars.map((bar) => ({ x: [bar.start_ms, bar.end_ms], y: side.lanes[bar.lane] })),
                        backgroundColor: colours[number % colours.length] + "b0",
                        borderColor: bars.map((bar) => bar.differs ? style("--mark") : colours[number % colours.length]),
                        borderWidth: bars.map((bar) => bar.differs ? 2 : .5), borderSkipped: false,
                    };
                }),
            },
            options: {
                indexAxis: "y",
                scales: { x: axis({ name: "time of the step", unit: "milliseconds" }, { ...linear([most]), min: 0, max: most }), y: { type: "category", labels: side.lanes } },
                plugins: {
                    zoom: zoom("x"),
                    title: { display: true, text: `${side.name}: ${shown(side.step_ms)} ms`, align: "start" },
                    legend: { display: last, position: "bottom", labels: { boxWidth: 10 } },
                    tooltip: { callbacks: {
                        title: (items) => items.map((item) => item.dataset.bars[item.dataIndex].name),
                        label: (item) => {
                            const bar = item.dataset.bars[item.dataIndex];
                            const other = bar.other_ms === null ? [] : [`${shown(bar.other_ms)} ms on the other side`];
                            return [`${shown(bar.end_ms - bar.start_ms)} ms from ${shown(bar.start_ms)} ms`, ...other];
                        },
                    } },
                },
            },
        });
        make("button", make("figcaption", figure, "Drag to zoom; "), "reset", { className: "reset" }).onclick = () => chart.resetZoom();
        return chart;
    });
};
if (report.timelines.length) {
    const section = make("section", app);
    make("h2", section, "A step, task by task");
    const label = make("label", make("div", section, undefined, { className: "filters" }), "configuration");
    const select = make("select", label, undefined, { name: "timeline" });
    report.timelines.forEach((lines, at) => make("option", select, lines.label, { value: at }));
    const inside = make("div", section);
    let drawn = [];
    select.onchange = () => {
        drawn.forEach((chart) => chart.destroy());
        inside.replaceChildren();
        const lines = report.timelines[select.value];
        drawn = drawLines(inside, lines);
        if (lines.differs) make("p", inside, lines.differs, { className: "notes" });
    };
    select.onchange();
}

make("h2", app, "Every row");
const table = make("table", make("div", app, undefined, { className: "wide" }));
const head = make("tr", make("thead", table));
const body = make("tbody", table);
for (const at of listed) {
    const button = make("button", make("th", head), report.columns[at].name, { title: report.columns[at].about });
    button.onclick = () => {
        state.down = state.order === at && !state.down;
        state.order = at;
        draw();
    };
}
const compare = (a, b) => {
    const [one, other] = [report.rows[a][state.order], report.rows[b][state.order]];
    if (one === null || other === null) return (one === null) - (other === null);
    const sign = typeof one === "number" && typeof other === "number" ? one - other : String(one).localeCompare(String(other), "en", { numeric: true });
    return state.down ? -sign : sign;
};
const draw = () => {
    const rows = passing();
    if (state.order !== null) rows.sort(compare);
    head.childNodes.forEach((th, at) => {
        const sorted = listed[at] === state.order;
        th.ariaSort = sorted ? (state.down ? "descending" : "ascending") : "none";
        th.firstChild.textContent = report.columns[listed[at]].name + (sorted ? (state.down ? " ↓" : " ↑") : "");
    });
    body.replaceChildren();
    for (const row of rows) {
        const line = make("tr", body);
        for (const at of listed) {
            const value = report.rows[row][at];
            const isHash = /^[0-9a-f]{64}$/.test(value);
            const className = typeof value === "number" ? "number" : !isHash && String(value).length > 24 ? "long" : "";
            make("td", line, isHash ? `${value.slice(0, 12)}…` : shown(value), { className, title: typeof value === "number" || isHash ? value : "" });
        }
    }
    const count = document.getElementById("count");
    if (count) count.textContent = `${rows.length} of ${report.rows.length} rows`;
    charts.forEach((update) => update());
};
draw();
if (report.notes.length) {
    make("h2", app, "What the figures rest on");
    const list = make("ul", app, undefined, { className: "notes" });
    for (const note of report.notes) make("li", list, note);
}
document.documentElement.dataset.drawn = "yes";
