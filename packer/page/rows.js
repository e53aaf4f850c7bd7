// Tells of the token under the pointer, or under the arrow keys, and copies a segment's text.
"use strict";

const tip = document.getElementById("tip");
const known = new Map(); // of a segment's <pre>: its figures, and the number of the first token of each element
let current = null;

for (const element of document.querySelectorAll(".js")) element.hidden = false;

function figuresOf(pre) {
  if (!known.has(pre)) {
    const figures = JSON.parse(pre.closest("article").querySelector("script").textContent);
    const firsts = new Map();
    let first = 0;
    for (const element of pre.children) {
      firsts.set(element, first);
      first += Number(element.dataset.n || 1);
    }
    known.set(pre, { ...figures, firsts });
  }
  return known.get(pre);
}

const COLUMNS = ["id", "label", "position", "in document", "in row"];

function made(name, content) {
  const element = document.createElement(name);
  if (Array.isArray(content)) element.append(...content);
  else element.textContent = content;
  return element;
}

function describe(element) {
  const figures = figuresOf(element.parentElement);
  const first = figures.firsts.get(element);
  const count = Number(element.dataset.n || 1);
  const table = made("table", [made("tr", COLUMNS.map((name) => made("th", name)))]);
  for (let i = first; i < first + count; i++) {
    const values = [figures.ids[i], figures.labels[i], figures.position + i, figures.start + i, figures.offset + i];
    table.append(made("tr", values.map((value) => made("td", String(value)))));
  }
  const what = count > 1 ? [made("p", `${count} tokens that share a character`)] : [];
  return [made("b", element.tagName === "MARK" ? "trained" : "not trained"), ...what, table];
}

function show(element) {
  if (element === current) return;
  hide();
  current = element;
  current.classList.add("at");
  tip.replaceChildren(...describe(current));
  tip.hidden = false;
  const box = current.getClientRects()[0];
  if (!box) return;
  const left = Math.max(8, Math.min(box.left, document.documentElement.clientWidth - tip.offsetWidth - 8));
  const below = box.bottom + 6 + tip.offsetHeight < innerHeight;
  tip.style.transform = `translate(${left}px, ${below ? box.bottom + 6 : Math.max(8, box.top - 6 - tip.offsetHeight)}px)`;
}

function hide() {
  if (current) current.classList.remove("at");
  if (current && !current.classList.length) current.removeAttribute("class");
  current = null;
  tip.hidden = true;
}

document.addEventListener("pointerover", (event) => {
  const element = event.target.closest("pre.tokens > *");
  if (element) show(element);
  else hide();
});
addEventListener("scroll", () => current && hide(), { passive: true });

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") hide();
  const pre = document.activeElement;
  if (!pre.matches("pre.tokens") || !["ArrowLeft", "ArrowRight"].includes(event.key)) return;
  event.preventDefault();
  const inside = current && current.parentElement === pre;
  const next = event.key === "ArrowRight" ? "nextElementSibling" : "previousElementSibling";
  const element = inside ? current[next] : pre.firstElementChild;
  if (!element) return;
  element.scrollIntoView({ block: "nearest" });
  requestAnimationFrame(() => requestAnimationFrame(() => show(element))); // after the scroll event, which hides
});

for (const button of document.querySelectorAll(".copy")) {
  button.addEventListener("click", () => {
    const range = document.createRange();
    range.selectNodeContents(button.closest("article").querySelector("pre.tokens"));
    const selection = getSelection();
    selection.removeAllRanges();
    selection.addRange(range);
    document.execCommand("copy"); // unlike the Clipboard API it works in a file that is opened from a disk
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy text"; }, 1500);
  });
}
