# What whoever runs the daemon gets beside the programs; included by the Makefile.

.PHONY: man install-man uninstall-man

PAGES := $(basename $(wildcard deploy/man/*.in))
MAN_OBJECTS := $B/deploy/man/pages.o
man_dir = $(DESTDIR)$(PREFIX)/share/man/man$(patsubst .%,%,$(suffix $(1)))

$B/deploy/man/pages: $(MAN_OBJECTS) $(LIBRARY)
	$(call say,LINK)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(LIBS)

man: ## write the manual pages in deploy/man anew, from their templates and the tables of the code
	+@$(BUILD) build/deploy/man/pages
	@for page in $(PAGES); do build/deploy/man/pages $$page.in >build/deploy/man/page && mv build/deploy/man/page $$page || exit 1; done

# The pages are in the repository, so that installing what was compiled for another machine runs nothing of it.
install-man:
	$(foreach page,$(PAGES),install -d $(call man_dir,$(page)) && install -m 644 $(page) $(call man_dir,$(page)) &&) :

uninstall-man:
	rm -f $(foreach page,$(PAGES),$(call man_dir,$(page))/$(notdir $(page)))
