// Small things that Gradio leaves out: a skip link, a window title that follows the page's heading, upload fields that
// say which file they are for and that open with Enter as with Space; one entry lit up in a table and its figures; and
// tables that fade out on the right while more of them stands there.
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
    const wanted = !heading || heading.dataset.title === name ? name : heading.dataset.title + " · " + name;
    if (document.title !== wanted) document.title = wanted;
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
  // Copies the text below a button with data-copy; where the browser forbids it, selects it instead.
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
  // Whatever shows one entry lights up where the pointer rests on any of it.
  const light = (event) => {
    const key = event.target.closest?.("[data-entry]")?.dataset.entry;
    for (const one of document.querySelectorAll("[data-entry]")) one.classList.toggle("rv-lit", Boolean(key) && one.dataset.entry === key);
  };
  let asked = 0;
  const fade = () => {
    cancelAnimationFrame(asked);
    asked = requestAnimationFrame(() => {
      const boxes = [...document.querySelectorAll(".rv-scroll")];
      const more = boxes.map((box) => box.scrollLeft + box.clientWidth < box.scrollWidth - 4);
      boxes.forEach((box, n) => box.classList.toggle("rv-more", more[n]));
    });
  };
  // Paper is light.
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
