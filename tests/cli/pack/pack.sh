# begin: models
cat > my_models.txt <<'END'
llama-3-8b heads=32/8 dim=128 page=16,64
gemma-2-9b heads=16/8 dim=256 softcap=50
END
# end: models
# begin: make
rapt pack --arch 80,90a --models my_models.txt -o my_models.rpk
rapt pack --list my_models.rpk
# end: make
