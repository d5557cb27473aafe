// Draws a report: filters, charts, timelines and a table that sorts. All figures are in the element `report`.
"use strict";
const report = JSON.parse(document.getElementById("report").textContent);
const column = Object.fromEntries(report.columns.map((one, at) => [one.name, at]));
// Okabe and Ito 2008: colours that most eyes tell apart.
const colours = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#999999"];
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
    if (Number.isInteger(value)) return value.toLocaleString("en", { useGrouping: Math.abs(value) >= 1e5 });
    return Math.abs(value) >= 1e-3 && Math.abs(value) < 1e6 ? String(+value.toPrecision(4)) : value.toExponential(3);
};
// Seconds of steps are read in milliseconds.
const mark = (name, value) => (name.endsWith("_s") ? `${shown(+(value * 1e3).toPrecision(6))} ms` : shown(value));
const cell = (row, name) => report.rows[row][column[name]];

// Columns that tell rows apart, and those that all rows agree on.
const differs = (at) => new Set(report.rows.map((row) => JSON.stringify(row[at]))).size > 1;
const isNumber = (at) => report.rows.some((row) => typeof row[at] === "number");
const isEmpty = (at) => report.rows.every((row) => row[at] === null);
const places = report.columns.map((_, at) => at);
const common = places.filter((at) => report.settings.includes(report.columns[at].name) && !differs(at) && !isEmpty(at) && report.rows.length > 1);
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
    return { plot, canvas, reset };
};
const axis = (name, log) => ({
    type: log ? "logarithmic" : "linear",
    title: { display: true, text: name },
    ticks: { callback: (value) => mark(name, value), maxTicksLimit: 7, autoSkip: true },
    ...(log ? {} : { beginAtZero: true }),
});
// Marks where there are points: numbers of ranks are few.
const marks = (x) => {
    const values = [...new Set(report.rows.map((_, row) => cell(row, x)))].filter((value) => typeof value === "number");
    return (scale) => { if (values.length <= 12) scale.ticks = values.sort((a, b) => a - b).map((value) => ({ value })); };
};
const grid = make("div", app, undefined, { className: "charts" });
for (const spec of report.charts) {
    const drawn = (row) => spec.lines.some(([, y]) => typeof cell(row, y) === "number") && typeof cell(row, spec.x) === "number";
    if (!report.rows.some((_, row) => drawn(row))) continue;
    const { canvas, reset } = addChart(grid, spec.title, spec.diagonal ? "On the line both are equal." : spec.lines.length > 1 ? `Dashed: ${spec.lines[0][0]}.` : "");
    const chart = new Chart(canvas, {
        type: "scatter",
        data: { datasets: [] },
        options: {
            scales: {
                x: { ...axis(spec.x, spec.log), ...(spec.diagonal ? {} : { afterBuildTicks: marks(spec.x) }) },
                y: axis(spec.y, spec.log && spec.y !== "efficiency"),
            },
            plugins: {
                zoom: zoom("xy"),
                legend: { position: "bottom", labels: { boxWidth: 10, filter: (item) => item.text !== "equal" } },
                tooltip: { callbacks: { label: (item) => item.raw.row === undefined ? "" : [item.dataset.label, ...factors.map((at) =>
                    `${report.columns[at].name} ${shown(report.rows[item.raw.row][at])}`), `${spec.x} ${shown(item.raw.x)}`, `${item.dataset.column} ${shown(item.raw.y)}`] } },
            },
        },
    });
    reset.onclick = () => chart.resetZoom();
    charts.push(() => {
        const rows = passing().filter(drawn);
        // What x tells already makes no line of its own: samples per rank where those of all ranks are given.
        const told = (at) => new Set(rows.map((row) => JSON.stringify([cell(row, spec.x), report.rows[row][at]]))).size
            === new Set(rows.map((row) => cell(row, spec.x))).size;
        const by = spec.by ? [column[spec.by]].filter(differs) : factors.filter((at) => report.columns[at].name !== spec.x && (spec.diagonal ? !isNumber(at) : !told(at)));
        // A single rank has no algorithm: it begins every line.
        const any = (row) => by.some((at) => report.rows[row][at] === "-");
        const groups = new Map();
        const value = (row, at) => (isNumber(at) ? `${report.columns[at].name} ` : "") + shown(report.rows[row][at]);
        const key = (row) => by.map((at) => value(row, at)).join(", ");
        const open = (row) => groups.get(key(row)) || groups.set(key(row), []).get(key(row));
        rows.filter((row) => !any(row)).forEach((row) => open(row).push(row));
        for (const row of rows.filter(any)) {
            const same = (other) => by.every((at) => report.rows[row][at] === "-" || report.rows[row][at] === report.rows[other][at]);
            const fitting = [...groups.values()].filter((members) => same(members[0]));
            (fitting.length ? fitting : [open(row)]).forEach((members) => members.push(row));
        }
        chart.data.datasets = [];
        [...groups].forEach(([key, members], number) => spec.lines.forEach(([name, y], side) => {
            const points = members.filter((row) => typeof cell(row, y) === "number").map((row) => ({ x: cell(row, spec.x), y: cell(row, y), row }));
            points.sort((a, b) => a.x - b.x);
            const colour = colours[number % colours.length];
            chart.data.datasets.push({
                label: [key, spec.lines.length > 1 ? name : ""].filter((part) => part).join(", ") || name, column: y, data: points, borderColor: colour,
                backgroundColor: colour, showLine: !spec.diagonal, borderWidth: 1.5, pointRadius: 3.5,
                borderDash: spec.lines.length > 1 && side === 0 ? [5, 4] : [], pointStyle: side === 0 || spec.lines.length === 1 ? "circle" : "rectRot",
            });
        }));
        if (spec.diagonal && rows.length) {
            const all = rows.flatMap((row) => [cell(row, spec.x), ...spec.lines.map(([, y]) => cell(row, y))]).filter((value) => typeof value === "number");
            const ends = [Math.min(...all), Math.max(...all)];
            chart.data.datasets.push({ label: "equal", data: ends.map((end) => ({ x: end, y: end })), showLine: true, borderColor: style("--soft"), borderWidth: 1, pointRadius: 0 });
        }
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
                scales: { x: { ...axis("ms", false), min: 0, max: most }, y: { type: "category", labels: side.lanes } },
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
