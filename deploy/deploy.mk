# What whoever runs the daemon gets beside the programs; included by the Makefile.

.PHONY: man install-man uninstall-man

PAGES := $(basename $(wildcard deploy/man/*.in))
COMPLETIONS := $(basename $(wildcard deploy/completion/*.in))
WRITERS := $B/deploy/man/pages $B/deploy/completion/completions
WRITER_OBJECTS := $(WRITERS:=.o) $B/deploy/template.o
man_dir = $(DESTDIR)$(PREFIX)/share/man/man$(patsubst .%,%,$(suffix $(1)))

$(WRITERS): %: %.o $B/deploy/template.o $(LIBRARY)
	$(call say,LINK)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(LIBS)

man: ## write manual pages and completions in deploy/ anew, from their templates and the tables of the code
	+@$(BUILD) $(WRITERS)
	@for page in $(PAGES); do $B/deploy/man/pages $$page.in >$B/deploy/page && mv $B/deploy/page $$page || exit 1; done
	@for script in $(COMPLETIONS); do \
	    $B/deploy/completion/completions $$script.in >$B/deploy/script && mv $B/deploy/script $$script || exit 1; done

# The pages are in the repository, so that installing what was compiled for another machine runs nothing of it.
install-man:
	$(foreach page,$(PAGES),install -d $(call man_dir,$(page)) && install -m 644 $(page) $(call man_dir,$(page)) &&) :

uninstall-man:
	rm -f $(foreach page,$(PAGES),$(call man_dir,$(page))/$(notdir $(page)))
