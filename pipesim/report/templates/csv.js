// A table as a CSV file: raw values, the unit in the head, and no text that a spreadsheet takes for a formula.

/** The exact value, in SI units, as a person would type it. */
const raw = value => value === null ? "" : Array.isArray(value) ? value.join(" ") : String(value);

const csvCell = value => {
  const text = typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : raw(value);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
};

const csv = (data, order) => [
  data.heads.map(head => csvCell(head.unit ? `${head.title} [${head.unit}]` : head.title)).join(","),
  ...order.map(row => data.columns.map(column => csvCell(column[row])).join(",")),
  "",
].join("\r\n");

/** With the mark by which Excel knows UTF-8, where there is more than ASCII. */
const save = (name, text) => {
  const mark = /[^\x00-\x7f]/.test(text) ? "\ufeff" : "";
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([mark, text], {type: "text/csv;charset=utf-8"}));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
};
