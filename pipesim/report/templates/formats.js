// How a value reads: what report/formats.py's show does, by the same tables of units (which the page brings along).

/** Decimals as Python rounds them: a number halfway between two goes to the even one, not to the larger. */
const fixed = (value, decimals) => {
  if (Math.abs(value) >= 1e21) return grouped(String(BigInt(value))) + (decimals ? "." + "0".repeat(decimals) : "");
  let text = value.toFixed(decimals);
  const halfway = Math.abs(value * 2 ** (decimals + 1)) % 2 === 1, last = Number(text.at(-1));
  if (halfway && last % 2) text = text.slice(0, -1) + (last - 1);
  if (Number(text) === 0) text = text.replace("-", "");
  const [whole, part] = text.split(".");
  return grouped(whole) + (part ? "." + part : "");
};

const grouped = digits => digits.replace(/\B(?=(\d{3})+$)/g, ",");

const trimmed = text => text.includes(".") ? text.replace(/\.?0+$/, "") : text;

const withUnit = (value, units) => {
  const found = value === 0 ? units.find(unit => unit[0] === 1) : units.find(unit => Math.abs(value) >= 0.99995 * unit[0]);
  const [size, sign, decimals] = found ?? units.at(-1);
  return value === 0 && size === 1 ? `0${sign}` : fixed(value / size, decimals) + sign;
};

/** Four significant digits, all of them before the point; tiny and huge values with an exponent. */
const plain = value => {
  if (value === 0) return "0";
  const shortest = value.toExponential(), exponent = Number(shortest.split("e")[1]);
  if (exponent >= -4 && exponent < 12) {
    return trimmed(fixed(value, Math.max(0, 3 - exponent)));
  }
  const digits = shortest.split("e")[0];  // halfway between two, exactly, to the even one
  const halfway = exponent > 0 && /\.\d[02468]5$/.test(digits)
    && BigInt(value) === BigInt(digits.replace(".", "")) * 10n ** BigInt(exponent - 3);
  const rounded = halfway ? `${digits.slice(0, -1)}e${exponent}` : value.toExponential(2);
  return rounded.replace("e+", "e");
};

/** `head` is a column's kind and whether all its numbers are whole; `rules` has the units and the sign for nothing. */
const show = (value, head, rules) => {
  if (value === null) return rules.nothing;
  if (typeof value === "string") return value;
  if (Array.isArray(value)) {
    if (value.length > rules.longest) return `${value[0]} ${value[1]} … ${value.at(-1)}`;
    return value.length ? value.join(" ") : rules.nothing;
  }
  if (head.kind === "flag" || typeof value === "boolean") return value ? "yes" : "no";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "-∞";
  if (head.kind in rules.units) return withUnit(value, rules.units[head.kind]);
  return head.whole ? grouped(String(value)) : plain(value);
};
