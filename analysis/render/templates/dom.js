// Elements are made here. Text from runs only ever becomes `textContent` or an attribute, never markup.
const SVG = "http://www.w3.org/2000/svg";

function furnished(element, attributes, text) {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

const svg = (name, attributes = {}, text = undefined) =>
  furnished(document.createElementNS(SVG, name), attributes, text);
const html = (name, attributes = {}, text = undefined) =>
  furnished(document.createElement(name), attributes, text);

function button(text, press, attributes = {}) {
  const made = html("button", { type: "button", ...attributes }, text);
  made.addEventListener("click", press);
  return made;
}

const clamp = (value, low, high) => Math.max(low, Math.min(high, value));
