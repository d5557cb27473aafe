// How series of charts look, and the figures on axes: as in the pictures in SVG (models/report/src/svg).
"use strict";
// Okabe and Ito 2008: colours that most eyes tell apart.
const colours = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#999999"];
const shapes = [["circle", 0], ["rect", 0], ["triangle", 0], ["rectRot", 0], ["triangle", 180]];
// The dashes of a round of colours: its digits, written with 1, 2 and 3, as lengths; a long gap ends the pattern.
const dashes = (round) => {
    const lengths = [];
    for (; round > 0; round = Math.floor((round - 1) / 3)) lengths.push([6, 2, 11][(round - 1) % 3], 3);
    return lengths.length ? [...lengths.slice(0, -1), 7] : [];
};
// The look of the series with this number; no two are alike.
const look = (number) => {
    const round = Math.floor(number / colours.length);
    const [shape, turned] = shapes[round % shapes.length];
    return { colour: colours[number % colours.length], shape, turned, dash: dashes(round) };
};

// Ones, twos and fives of each power of ten; of a logarithmic axis over many powers ones alone.
const rounded = (steps) => {
    const all = [];
    for (let power = -15; power < 16; power++) for (const step of steps) all.push(+`${step}e${power}`);
    return all;
};
const powers = { tens: rounded([1]), fives: rounded([1, 2, 5]), twos: Array.from({ length: 41 }, (_, power) => 2 ** power) };

// The ends and marks of a logarithmic axis of these values: widened to the nearest marks until two are on it.
const logarithmic = (values, marks) => {
    const above = values.filter((value) => value > 0);
    let [low, high] = above.length ? [Math.min(...above), Math.max(...above)] : [1, 10];
    const room = Math.max(1.1, (high / low) ** 0.04);
    [low, high] = [low / room, high * room];
    const held = () => marks.filter((mark) => low <= mark && mark <= high);
    while (held().length < 2) {
        const below = marks.findLast((mark) => mark < low), over = marks.find((mark) => mark > high);
        if (over === undefined || (below !== undefined && low / below <= over / high)) low = below; else high = over;
    }
    return { min: low, max: high, marks: held() };
};
// The ends and marks of a linear axis of these values and zero; counts have whole marks.
const linear = (values, isCount) => {
    let [low, high] = [Math.min(0, ...values), Math.max(0, ...values)];
    if (low === high) high = 1;
    const room = 0.05 * (high - low);
    [low, high] = [low < 0 ? low - room : low, high > 0 ? high + room : high];
    const step = powers.fives.find((one) => (high - low) / one <= 7 && (!isCount || one >= 1));
    const marks = [];
    for (let at = Math.ceil(low / step); at * step <= high; at++) marks.push(+(at * step).toPrecision(12));
    return { min: low, max: high, marks };
};
// Bins of equal width for a histogram, at most 34: [begin, end, count].
const bins = (values) => {
    const [low, high] = [Math.min(...values), Math.max(...values)];
    const width = powers.fives.find((one) => (high - low) / one <= 32);
    const first = Math.floor(low / width);
    const made = Array.from({ length: Math.floor(high / width) - first + 1 }, (_, at) => [(first + at) * width, (first + at + 1) * width, 0]);
    for (const value of values) made[Math.floor(value / width) - first][2]++;
    return made;
};
// Columns without which each combination of the others and `x` still has one value: what they say is said already.
// Of two that say the same, that one goes whose absence leaves fewer series.
const telling = (rows, x, columns) => {
    const series = (kept) => new Set(rows.map((row) => JSON.stringify(kept.map((at) => row[at])))).size;
    let kept = [...columns];
    for (;;) {
        const places = (of) => new Set(rows.map((row) => JSON.stringify([row[x], ...of.map((at) => row[at])]))).size;
        const all = places(kept);
        const without = kept.map((at) => kept.filter((other) => other !== at)).filter((of) => places(of) === all);
        if (!without.length) return kept;
        kept = without.reduce((best, of) => (series(of) < series(best) ? of : best));
    }
};
