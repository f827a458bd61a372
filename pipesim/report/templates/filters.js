// What a filter under a column's head means, and in which order two values stand.

const BOUND = /^(<=|>=|<|>|=)?\s*(-?[\d.,]+(?:e[+-]?\d+)?)\s*(\D*)$/i;
const TESTS = {
  "<": (a, b) => a < b, ">": (a, b) => a > b, "<=": (a, b) => a <= b, ">=": (a, b) => a >= b, "=": (a, b) => a === b,
};

/** A number as it is typed, in SI units: 80 GB is 8e10. Without a unit, the column's own is meant; null if it is none. */
const typed = (digits, unit, head, rules) => {
  const value = Number(digits.replaceAll(",", "")), sign = unit.trim().toLowerCase().replace(/^u/, "µ");
  if (Number.isNaN(value)) return null;
  if (!sign) return value * head.size;
  const found = (rules.units[head.kind] ?? []).find(each => each[1].trim().toLowerCase() === sign);
  return found ? value * found[0] : null;
};

/** The number that a value is compared by: of a list its largest part. */
const measure = value => Array.isArray(value) ? (value.length ? Math.max(...value) : null) : value;

/**
 * A test of a column's values; null for what cannot be understood (yet). `<80`, `>=4 GB`, `=8` and `2..16` compare numbers;
 * a bare whole number means itself where a column counts; anything else is looked for in the text that is shown.
 */
const filter = (text, head, rules) => {
  const wanted = text.trim(), contained = value => show(value, head, rules).toLowerCase().includes(wanted.toLowerCase());
  if (head.kind === "text" || head.kind === "flag") return contained;
  const ends = wanted.split("..").map(end => BOUND.exec(end.trim()));
  if (ends.length === 2 && ends.every(end => end && !end[1])) {
    const [low, high] = ends.map(end => typed(end[2], end[3] || ends[1][3], head, rules));
    if (low === null || high === null) return null;
    return value => value !== null && measure(value) >= low && measure(value) <= high;
  }
  const [, sign, digits, unit] = ends.length === 1 && ends[0] || [];
  if (sign || (digits && !unit && head.whole && head.kind === "count")) {
    const bound = typed(digits, unit, head, rules);
    return bound === null ? null : value => value !== null && TESTS[sign ?? "="](measure(value), bound);
  }
  return /^[<>=]/.test(wanted) ? null : contained;
};

/** Numbers before texts, texts as people count (t2 before t10), what is missing last whichever way is sorted. */
const comparison = sign => {
  const words = new Intl.Collator(document.documentElement.lang, {numeric: true});
  return (one, two) => {
    const a = measure(one), b = measure(two);
    if (a === null || b === null) return (a === null) - (b === null);
    if (typeof a !== "string" && typeof b !== "string") return a === b ? 0 : sign * (a < b ? -1 : 1);
    return sign * (typeof a === typeof b ? words.compare(a, b) : typeof a === "string" ? 1 : -1);
  };
};
