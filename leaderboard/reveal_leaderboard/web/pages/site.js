// All pages get a skip link, an entry highlighted in all tables and plots, and tables that fade out on the right if there
// is more to scroll to. On read-only pages, a changed form shows its view at once. Gradio's pages get a window title that
// follows the heading, and upload fields that name their file and open with Enter as well as Space.
(() => {
  const before = document.querySelector(".rv-skip"), isRead = !document.querySelector("gradio-app");
  if (before && !isRead) return;
  const name = "REVEAL leaderboard";
  const skip = before ?? document.createElement("a");
  skip.className = "rv-skip";
  skip.href = "#content";
  skip.textContent = "Skip to the content";
  skip.addEventListener("click", (event) => {
    const heading = document.querySelector(".rv-head h1");
    if (!heading) return;
    event.preventDefault();
    heading.tabIndex = -1;
    heading.focus();
    heading.scrollIntoView();
  });
  const follow = () => {
    if (isRead) return;
    if (!document.documentElement.lang) document.documentElement.lang = "en";
    const heading = document.querySelector("h1[data-title]");
    const title = !heading || heading.dataset.title === name ? name : heading.dataset.title + " · " + name;
    if (document.title !== title) document.title = title;
    for (const field of document.querySelectorAll("button.upload-container")) {
      const label = field.closest(".block")?.querySelector("label")?.textContent.trim();
      if (label) field.setAttribute("aria-label", label + ": click to choose a file, or drop one");
    }
  };
  const enter = (event) => {
    if (event.key !== "Enter" || !event.target.matches?.("button.upload-container")) return;
    event.preventDefault();
    event.stopPropagation();
    event.target.click();
  };
  // Copies the text below a button with data-copy; selects it if the browser forbids copying.
  const copy = async (event) => {
    const button = event.target.closest?.("button[data-copy]");
    const text = button?.parentElement.querySelector("pre");
    if (!text) return;
    try {
      await navigator.clipboard.writeText(text.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(text);
      button.textContent = "Selected";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  };
  // Return the address of a form's view; without empty fields, it is the shortest.
  const address = (form) => form.action + "?" + new URLSearchParams([...new FormData(form)].filter(([, value]) => value));
  // Return a part of a page by its id; null if the page cannot be read or lacks the part, as an error page does.
  const read = (url, id) => fetch(url).then((answer) => answer.text())
    .then((text) => new DOMParser().parseFromString(text, "text/html").getElementById(id)).catch(() => null);
  const change = (event) => {
    const form = event.target.closest("form[data-live]");
    if (!form || (event.type === "change" && event.target.type === "search")) return;
    event.preventDefault();
    location.assign(address(form));
  };
  let typed = 0;
  const search = ({target}) => {
    if (target.type !== "search" || !target.form.matches("[data-live]")) return;
    clearTimeout(typed);
    typed = setTimeout(async () => {
      const url = address(target.form), board = await read(url, "board");
      if (url !== address(target.form)) return;
      if (!board) return location.assign(url);
      document.querySelector("#board").replaceWith(board);
      history.replaceState(null, "", url);
    }, 250);
  };
  // A part that waits for the server is read again every second.
  const refresh = async () => {
    const part = document.querySelector("[data-refresh]");
    if (!part) return;
    const now = document.hidden ? null : await read(location.href, part.id);
    if (now && now.outerHTML !== part.outerHTML) part.replaceWith(now); // screen readers announce replaced parts
    setTimeout(refresh, 1000);
  };
  // On a phone, all choices except the first are collapsed, so that the board is visible.
  const unfold = (event) => {
    const button = event.target.closest?.(".rv-filters");
    if (button) button.setAttribute("aria-expanded", String(button.parentElement.classList.toggle("rv-open")));
  };
  // Pointing at an entry highlights it wherever it is shown.
  const light = (event) => {
    const key = event.target.closest?.("[data-entry]")?.dataset.entry;
    for (const item of document.querySelectorAll("[data-entry]")) item.classList.toggle("rv-lit", Boolean(key) && item.dataset.entry === key);
  };
  let frame = 0;
  const fade = () => {
    cancelAnimationFrame(frame);
    frame = requestAnimationFrame(() => {
      const boxes = [...document.querySelectorAll(".rv-scroll")];
      const more = boxes.map((box) => box.scrollLeft + box.clientWidth < box.scrollWidth - 4);
      boxes.forEach((box, n) => box.classList.toggle("rv-more", more[n]));
    });
  };
  // Print in light colours.
  let wasDark = false;
  addEventListener("beforeprint", () => {
    wasDark = document.body.classList.contains("dark");
    document.body.classList.remove("dark");
  });
  addEventListener("afterprint", () => document.body.classList.toggle("dark", wasDark));
  document.addEventListener("scroll", fade, {capture: true, passive: true});
  addEventListener("resize", fade);
  document.addEventListener("pointerover", light);
  document.addEventListener("click", copy);
  document.addEventListener("click", unfold);
  document.addEventListener("change", change);
  document.addEventListener("submit", change);
  document.addEventListener("input", search);
  document.addEventListener("keydown", enter, true);
  document.body.prepend(skip);
  follow();
  setTimeout(refresh, 1000);
  new MutationObserver(() => { follow(); fade(); }).observe(document.body, {childList: true, subtree: true});
})();
