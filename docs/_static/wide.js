// Wide tables and figures scroll in a frame that says so and can be reached by keyboard.
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
  const mark = () => {
    for (const frame of frames) {
      const scrolls = frame.scrollWidth > frame.clientWidth + 1;
      frame.classList.toggle("scrolls", scrolls);
      scrolls ? frame.setAttribute("tabindex", "0") : frame.removeAttribute("tabindex");
    }
  };
  mark();
  addEventListener("load", mark);
  addEventListener("resize", mark);
});
