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
