// Wide tables, figures and code scroll in a frame that says so and can be reached by keyboard.
document.addEventListener("DOMContentLoaded", () => {
  const frames = [];
  for (const item of document.querySelectorAll(".bd-article table, .bd-article img")) {
    if (item.closest(".wide, .sphx-glr-thumbcontainer")) continue;
    const frame = document.createElement("div");
    frame.className = "wide";
    item.replaceWith(frame);
    frame.append(item);
    frames.push(frame);
  }
  // numbers, also with one or two words, stay on one line; long texts get room
  for (const cell of document.querySelectorAll(".wide :is(td, tbody th)")) {
    const text = cell.textContent.trim();
    const words = text.split(/[A-Za-z]{2,}/).length - 1;
    const numeric = /\d/.test(text) && words <= 2 && text.length < 24;
    if (numeric || (cell.matches("td.text-right") && text.length < 40)) cell.classList.add("numeric");
    else if (text.length > 40) cell.classList.add("prose");
  }
  const blocks = [...document.querySelectorAll(".bd-article .highlight > pre")];
  const mark = () => {
    for (const item of [...frames, ...blocks]) {
      const scrolls = item.scrollWidth > item.clientWidth + 1;
      (blocks.includes(item) ? item.parentElement : item).classList.toggle("scrolls", scrolls);
      scrolls ? item.setAttribute("tabindex", "0") : item.removeAttribute("tabindex");
    }
  };
  mark();
  addEventListener("load", mark);
  addEventListener("resize", mark);
});
