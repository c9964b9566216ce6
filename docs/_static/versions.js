// A menu of versions, if the folder above the pages holds a copy of docs/versions.js. It is loaded as a
// script, which also works for pages that are opened from a disk.
const pages = new URL(document.documentElement.dataset.content_root, location);
function showVersions(versions) {
  const menu = document.createElement("details");
  const here = decodeURIComponent(pages.pathname.split("/").at(-2));
  menu.className = "versions";
  menu.innerHTML = "<summary>Versions</summary><ul></ul>";
  for (const version of versions) {
    const link = document.createElement("a");
    link.href = new URL(`../${version}/index.html`, pages);
    link.textContent = version;
    if (version === here) link.setAttribute("aria-current", "true");
    const item = document.createElement("li");
    item.append(link);
    menu.lastChild.append(item);
  }
  document.querySelector(".navbar-header-items__start").append(menu);
}
document.addEventListener("DOMContentLoaded", () => {
  const list = document.createElement("script");
  list.src = new URL("../versions.js", pages);
  document.head.append(list);
});
