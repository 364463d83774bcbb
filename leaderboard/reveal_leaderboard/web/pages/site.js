// Features that Gradio lacks: a skip link, a window title that follows the page's heading, upload fields that name their
// file and open with Enter as well as Space, an entry highlighted in all tables and plots, and tables that fade out on the
// right if there is more to scroll to.
(() => {
  if (document.querySelector(".rv-skip")) return;
  const name = "REVEAL leaderboard";
  const skip = document.createElement("a");
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
  document.addEventListener("keydown", enter, true);
  document.body.prepend(skip);
  follow();
  new MutationObserver(() => { follow(); fade(); }).observe(document.body, {childList: true, subtree: true});
})();
